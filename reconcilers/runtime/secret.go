package runtime

import "fmt"

// Secret is a text that is hidden when it is printed, logged or encoded. Convert it to a string to use it.
type Secret string

// Hidden is printed instead of a secret.
const Hidden = "(hidden)"

// Format prints [Hidden] for every verb.
func (Secret) Format(to fmt.State, _ rune) {
	_, _ = to.Write([]byte(Hidden)) // fmt ignores errors too
}

// MarshalText returns [Hidden].
func (Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }
