//go:build !race

package vcenter

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// half sends the first half of an OVA as if it were the first half.
func half(w http.ResponseWriter, content []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content[:len(content)/2])
	_ = http.NewResponseController(w).Flush()
}

// answers are what servers do that do not send what they have.
var answers = map[string]vcsim.Answer{
	"a truncated OVA": func(w http.ResponseWriter, _ *http.Request, content []byte) {
		half(w, content)
		panic(http.ErrAbortHandler)
	},
	"an OVA that stands still": func(w http.ResponseWriter, r *http.Request, content []byte) {
		half(w, content)
		<-r.Context().Done()
	},
	"an error": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		http.Error(w, "try again", http.StatusServiceUnavailable)
	},
	"another file": func(w http.ResponseWriter, _ *http.Request, content []byte) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), len(content)))
	},
}

// inFolder gives what is in the folder of the templates, and how many disks each has.
func (s *site) inFolder() string {
	var all []string
	for _, path := range s.vcenter.Machines() {
		if name, is := strings.CutPrefix(path, "/DC0/vm/images/"); is {
			all = append(all, fmt.Sprintf("%s with %d disks", name, len(s.vcenter.Hardware(path).Disks)))
		}
	}
	return strings.Join(all, ", ")
}

// Twelve releases one after the other, some of them from a server that is in trouble, leave nothing behind: no sessions, no leases, no parts.
func TestTemplateUpdates(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	s := maker(t)
	i := s.images()
	s.vcenter.AddFolder("/DC0/vm/images")
	o := s.template(i.Add("1", vcsim.OVAWithTwoDisks()))
	s.create(o)
	ready := func(release string) {
		s.Helper()
		s.until("release "+release+" is there", func() string {
			now := &v1alpha1.VSphereTemplate{}
			s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), now))
			if now.ReadyIn("a") != release {
				return fmt.Sprintf("%+v", now.Status)
			}
			return release
		}, release)
	}
	ready("1")
	left := func() string {
		return fmt.Sprintf("%d sessions, %d leases, %s", s.vcenter.Sessions(), s.vcenter.OpenLeases(), s.inFolder())
	}
	const nothing = "1 sessions, 0 leases, ubuntu with 2 disks"
	s.until("only the template is there", left, nothing)
	update := 1
	next := func() {
		update++
		release := strconv.Itoa(update)
		s.releases(o, i.Add(release, vcsim.OVAWithTwoDisks()), release)
		ready(release)
	}
	for name, a := range answers {
		t.Log(name)
		i.Badly(a)
		next()
	}
	for update <= 12 {
		next()
	}
	s.until("only the template is there", left, nothing)
}
