package vcenter

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// run runs the command, and gives what it prints.
func run(t *testing.T, v *vcsim.VCenter, args ...string) (out string, err error) {
	t.Helper()
	password, _ := v.User().Password()
	file, bundle := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "ca.pem")
	for name, content := range map[string]string{file: password + "\n", bundle: string(v.CABundle())} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := NewCommand()
	var text bytes.Buffer
	command.SetOut(&text)
	command.SilenceUsage, command.SilenceErrors = true, true
	command.SetArgs(append([]string{"check", "--server", v.URL(), "--username", v.User().Username(), "--password-file", file, "--ca-file", bundle}, args...))
	err = command.ExecuteContext(t.Context())
	return text.String(), err
}

func start(t *testing.T) *vcsim.VCenter {
	t.Helper()
	v, err := vcsim.Start(vcsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

var places = []string{
	"--write-in", "/DC0/vm", "--resource-pool", "/DC0/host/DC0_C0/Resources", "--datastore", "/DC0/datastore/LocalDS_0", "--network", "/DC0/network/VM Network",
}

// The double of a vCenter for tests is as Sallyport needs it. Nothing is left of the check, nor of its session.
func TestCheck(t *testing.T) {
	v := start(t)
	out, err := run(t, v, places...)
	if err != nil || strings.Contains(out, "FAILED") || strings.Count(out, "\n") < 20 {
		t.Errorf("error %v, and it prints\n%s", err, out)
	}
	if machines, disks := v.Machines(), v.FCDs(); len(machines) > 0 || len(disks) > 0 {
		t.Errorf("there are %v and %v", machines, disks)
	}
	if n := v.Sessions(); n > 0 {
		t.Errorf("%d sessions are open", n)
	}
	out, err = run(t, v)
	if err != nil || strings.Contains(out, "created") || !strings.Contains(out, "add --write-in FOLDER") {
		t.Errorf("without changes: error %v, and it prints\n%s", err, out)
	}
}

// What is not so is named, and what depends on it is not checked; what was made is removed.
func TestCheckThatFails(t *testing.T) {
	v := start(t)
	v.SetKeepsDisks(false)
	out, err := run(t, v, places...)
	if err == nil || err.Error() != "1 of 23 checks failed" || !strings.Contains(out, "FAILED  a machine that is destroyed leaves its disk: the disk is gone\n") {
		t.Errorf("error %v, and it prints\n%s", err, out)
	}
	wrong := append([]string{}, places...)
	wrong[1] = "/DC0/host"
	out, err = run(t, v, wrong...)
	if err == nil || !strings.Contains(out, "becomes a template: spec.failureDomains[check].folder: the folder /DC0/host is not one for machines") || !strings.Contains(out, "not checked, because something before it failed") {
		t.Errorf("error %v, and it prints\n%s", err, out)
	}
	if machines, disks := v.Machines(), v.FCDs(); len(machines) > 0 || len(disks) > 0 {
		t.Errorf("there are %v and %v", machines, disks)
	}
}
