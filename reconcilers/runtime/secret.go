package runtime

import "fmt"

// Secret is a text that does not show where a value is printed, logged or encoded. Who needs it converts it to a string.
type Secret string

// Hidden is what shows of a secret.
const Hidden = "(hidden)"

// Format prints that there is one, whatever the verb.
func (Secret) Format(to fmt.State, _ rune) {
	_, _ = to.Write([]byte(Hidden)) // fmt gives errors to nobody either
}

// MarshalText encodes that there is one.
func (Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }
