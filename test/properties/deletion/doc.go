// Package deletion holds what the API server asks the policies about deletion against what they refuse: the conditions by which it
// asks spare requests, and change no verdict; and they fail for no kind of object.
package deletion
