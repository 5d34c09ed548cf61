//go:build !race

package vcenter

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
)

// secrets are the passwords that nobody may read anywhere.
var secrets vault

type vault struct {
	mu        sync.Mutex
	passwords []string
}

// add adds a password.
func (v *vault) add(password string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.passwords = append(v.passwords, password)
}

// leaks tells where one of them can be read, as it is or encoded: in any state of an object of ours, in an event, in what the
// manager has logged, or in a decision record.
func (v *vault) leaks() error {
	places := map[string]string{"the log": stack.Logs.String(), "the records": stack.Records.String()}
	if stack.witness != nil {
		for i, s := range stack.witness.since(0) {
			places[fmt.Sprintf("sighting %d, %T %s", i, s.Object, s.GetName())] = s.String()
		}
	}
	var all error
	for place, text := range places {
		for _, password := range v.passwords {
			for _, form := range []string{
				password, url.QueryEscape(password), url.PathEscape(password), url.UserPassword("", password).String()[1:],
				base64.StdEncoding.EncodeToString([]byte(password)), fmt.Sprintf("%x", password), fmt.Sprintf("%v", []byte(password)),
			} {
				if strings.Contains(text, form) {
					all = errors.Join(all, fmt.Errorf("the password shows in %s, as %s", place, form))
				}
			}
		}
	}
	return all
}
