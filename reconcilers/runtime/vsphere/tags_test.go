package vsphere_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

type labels = map[string]v1alpha1.LabelValue

// tagged is a world whose second and third host have tags.
func tagged(t *testing.T) (w *world, hosts []string) {
	t.Helper()
	w = newWorld(t)
	hosts = w.Hosts()
	for _, tag := range [][3]string{
		{hosts[1], "zone", "b"}, {hosts[2], "zone", "b"}, {hosts[2], "disk", "nvme"}, {hosts[0], "other", "b"}, {hosts[0], "zone", "a"},
	} {
		w.Must(w.Tag(t.Context(), tag[0], tag[1], tag[2]))
	}
	return w, hosts
}

func (w *world) hostOf(m runtime.Machine) string { return w.State(w.path(m)).Host }

// A machine is made, powered on and moved only to hosts with all tags.
func TestSelectedHosts(t *testing.T) {
	w, hosts := tagged(t)
	m := w.cloned("web-1")
	m.Spec.NodeSelector = labels{"zone": "b", "disk": "nvme"}
	m = w.ensure(m)
	if got := w.hostOf(m); got != hosts[2] {
		t.Errorf("made on %s", got)
	}
	m.Spec.NodeSelector = labels{"zone": "b"}
	if seen := w.on(m); seen.NodeName != hosts[2] {
		t.Errorf("powered on on %s, and was on %s", seen.NodeName, hosts[2])
	}
	w.Must(w.runtime.Migrate(t.Context(), m, runtime.Target{})) // away
	if seen := w.observe(m); seen.NodeName != hosts[1] {
		t.Errorf("moved to %s", seen.NodeName)
	}
	for _, again := range []runtime.Target{{Leave: hosts[2]}, {NodeSelector: labels{"zone": "b"}, Leave: hosts[0]}} {
		before := w.Requests()
		w.Must(w.runtime.Migrate(t.Context(), m, again))
		if seen := w.observe(m); seen.NodeName != hosts[1] || w.Requests() == before {
			t.Errorf("moved again, to %s", seen.NodeName)
		}
	}
	w.Must(w.runtime.Migrate(t.Context(), m, runtime.Target{NodeSelector: labels{"disk": "nvme"}}))
	if seen := w.observe(m); seen.NodeName != hosts[2] {
		t.Errorf("moved to %s", seen.NodeName)
	}
	err := w.runtime.Migrate(t.Context(), m, runtime.Target{NodeSelector: labels{"zone": "a"}})
	want := "no other host of the machine's cluster has the tags zone=a, zone=b, is connected, not in maintenance mode, and has the machine's datastores and networks, and room for its memory"
	if !runtime.IsInvalidState(err) || runtime.Message(err) != want {
		t.Errorf("got %v", err)
	}
	err = w.runtime.Migrate(t.Context(), m, runtime.Target{NodeName: hosts[0]})
	if want := "the host " + hosts[0] + " does not have the tags zone=b"; !runtime.IsInvalidState(err) || runtime.Message(err) != want {
		t.Errorf("got %v", err)
	}
}

// One that is off is started on a host with the tags, and stays off if there is none.
func TestSelectedAtPowerOn(t *testing.T) {
	w, hosts := tagged(t)
	m := w.adopted("web-1")
	if got := w.hostOf(m); got != hosts[0] {
		t.Fatalf("it is on %s", got)
	}
	m.Spec.NodeSelector = labels{"zone": "c"}
	err := w.runtime.PowerOn(t.Context(), m)
	if !runtime.IsInvalidSpec(err) || !strings.HasPrefix(runtime.Message(err), "spec.nodeSelector: no host of the machine's cluster has the tags zone=c, ") {
		t.Errorf("got %v", err)
	}
	if seen := w.observe(m); seen.Power != v1alpha1.PowerStopped || seen.NodeName != hosts[0] {
		t.Errorf("got %+v", seen)
	}
	m.Spec.NodeSelector = labels{"disk": "nvme"}
	if seen := w.on(m); seen.NodeName != hosts[2] {
		t.Errorf("powered on on %s", seen.NodeName)
	}
}

func TestSelectedNowhere(t *testing.T) {
	w, hosts := tagged(t)
	m := w.cloned("web-1")
	m.Spec.NodeSelector = labels{"disk": "nvme"}
	w.SetHost(hosts[2], true, true)
	_, err := w.runtime.Ensure(t.Context(), m)
	want := "spec.nodeSelector: no host of the cluster has the tags disk=nvme, is connected, not in maintenance mode, and has the machine's datastores and networks"
	if !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
		t.Errorf("got %v", err)
	}
	m.Spec.NodeName = hosts[1]
	_, err = w.runtime.Ensure(t.Context(), m)
	if want := "spec.nodeName: the host " + hosts[1] + " does not have the tags disk=nvme"; !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
		t.Errorf("got %v", err)
	}
}

// The session of the REST API is made when it is needed, kept, and made anew when it has ended. What cannot be read is named.
func TestRESTSession(t *testing.T) {
	w, hosts := tagged(t)
	p := newProxy(w)
	rt := w.at(func(c *session.Config) {
		c.URL, c.CABundle = p.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	})
	m := w.adopted("web-1")
	before, _ := w.Logins()
	moves := func(logins int) {
		t.Helper()
		w.Must(rt.Migrate(t.Context(), m, runtime.Target{NodeSelector: labels{"zone": "b"}, Leave: hosts[0]}))
		w.observe(m)
		if now, _ := w.Logins(); now-before != logins {
			t.Errorf("%d logins, not %d", now-before, logins)
		}
	}
	moves(2) // one is for everything else
	moves(2)
	for status, want := range map[int32]string{
		http.StatusForbidden:  "vCenter lab does not let the account read tags",
		http.StatusNotFound:   "vCenter lab has no REST API that knows tags",
		http.StatusBadGateway: "vCenter lab did not answer",
	} {
		p.tagging.Store(status)
		err := rt.Migrate(t.Context(), m, runtime.Target{NodeSelector: labels{"zone": "a"}})
		if runtime.Message(err) != want {
			t.Errorf("%d: %v", status, err)
		}
	}
	p.tagging.Store(http.StatusUnauthorized) // its session has ended, and so has the next one
	if err := rt.Migrate(t.Context(), m, runtime.Target{NodeSelector: labels{"zone": "a"}}); !runtime.IsPermission(err) {
		t.Errorf("got %v", err)
	}
	p.tagging.Store(0)
	moves(3)
}

// A password that the REST API refuses is not tried again at once, since that would lock the account.
func TestRESTRefusesTheLogin(t *testing.T) {
	w, _ := tagged(t)
	m := w.adopted("web-1") // so that there is a session of the other kind
	w.SetUser(url.UserPassword("administrator@vsphere.local", "changed"))
	wrong := url.UserPassword("administrator@vsphere.local", "hunter2")
	rt := w.at(func(c *session.Config) {
		first := true
		c.Credentials = func(context.Context) (*url.Userinfo, error) {
			if first {
				first = false
				return w.User(), nil
			}
			return wrong, nil
		}
	})
	for range 3 {
		err := rt.Migrate(t.Context(), m, runtime.Target{NodeSelector: labels{"zone": "b"}})
		if !runtime.IsPermission(err) || runtime.Message(err) != "the REST API of vCenter lab refused the login, which is needed for tags" {
			t.Errorf("got %v", err)
		}
	}
	if _, refused := w.Logins(); refused != 1 {
		t.Errorf("%d refused logins", refused)
	}
}
