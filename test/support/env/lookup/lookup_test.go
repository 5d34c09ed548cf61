package lookup

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each place comes before the ones below it.
func TestFindLooksInOrder(t *testing.T) {
	m := newMachine(t)
	newSite(t)
	t.Setenv(DownloadVariable, "")
	t.Setenv(AssetsVariable, m.path("assets"))
	answer := `echo '{"clientVersion": {"gitVersion": "v1.37.0"}}'`
	downloads, store := "downloads/v1.37.2-"+platform, ".local/share/kubebuilder-envtest/k8s/1.37.0-"+platform
	places := []struct{ folder, where string }{
		{"assets", "KUBEBUILDER_ASSETS (" + m.path("assets") + ")"},
		{"built", m.path("built")},
		{downloads, m.path(downloads)},
		{store, "the store of setup-envtest (" + m.path(store) + ")"},
		{"bin", "PATH (" + m.path("bin") + ")"},
	}
	for _, place := range places {
		m.script(t, place.folder+"/kubectl", answer)
	}
	for _, place := range append(places, places[2]) { // at last, it is downloaded
		path, where, err := m.finder().Find(t.Context(), Kubectl)
		if path != m.path(place.folder, Kubectl) || where != place.where || err != nil {
			t.Errorf("Find() = %s in %s, %v; want it in %s", path, where, err, place.where)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(DownloadVariable, "0")
	if got := m.find(t, Kubectl); got != "" {
		t.Errorf("Find() = %s although there is none", got)
	}
}

func TestAssetsAreTakenAsTheyAre(t *testing.T) {
	m := newMachine(t)
	t.Chdir(m.home)
	t.Setenv(AssetsVariable, "assets")
	for _, program := range []string{Etcd, APIServer, ControllerManager, Kubectl, Helm} {
		if got, want := m.find(t, program), m.file(t, "assets/"+program, "of any version"); got != "" {
			t.Errorf("Find(%s) = %s before it is there, want %s", program, got, want)
		}
		if got, want := m.find(t, program), m.path("assets", program); got != want {
			t.Errorf("Find(%s) = %s, want %s", program, got, want)
		}
	}
}

func TestStoreOfSetupEnvtest(t *testing.T) {
	store := func(version string) string {
		return "data/kubebuilder-envtest/k8s/" + version + "/" + APIServer
	}
	answer := "echo Kubernetes v1.37.0"
	tests := map[string]struct {
		installed map[string]string // by version and platform
		want      string
		hear      []string
	}{
		"the newest of our minor version": {
			installed: map[string]string{
				"1.37.9-" + platform: answer, "1.37.10-" + platform: answer, "1.38.0-" + platform: answer, "1.36.2-" + platform: answer,
			},
			want: "1.37.10-" + platform,
		},
		"another minor version": {installed: map[string]string{"1.36.2-" + platform: answer, "1.38.0-" + platform: answer}},
		"another platform":      {installed: map[string]string{"1.37.0-plan9-mips": answer}},
		"another major version": {installed: map[string]string{"2.37.0-" + platform: answer}},
		"no version":            {installed: map[string]string{"latest-" + platform: answer}},
		"a broken program is skipped": {
			installed: map[string]string{"1.37.1-" + platform: "exit 3", "1.37.0-" + platform: answer},
			want:      "1.37.0-" + platform,
			hear:      []string{"kube-apiserver: skipped", "1.37.1", "it does not run: exit status 3", "setup-envtest cleanup 1.37.1"},
		},
		"a program that says something else is skipped": {
			installed: map[string]string{"1.37.1-" + platform: "echo hello"},
			hear:      []string{"`kube-apiserver --version` does not say a version"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			t.Setenv("XDG_DATA_HOME", m.path("data"))
			for version, script := range test.installed {
				m.script(t, store(version), script)
			}
			want := ""
			if test.want != "" {
				want = m.path(store(test.want))
			}
			if got := m.find(t, APIServer); got != want {
				t.Errorf("Find() = %q, want %q", got, want)
			}
			if len(test.hear) > 0 && !m.heard(test.hear...) {
				t.Errorf("no line of %q has all of %q", m.said, test.hear)
			}
		})
	}
	t.Run("half a program is skipped", func(t *testing.T) {
		m := newMachine(t)
		m.file(t, ".local/share/kubebuilder-envtest/k8s/1.37.0-"+platform+"/etcd", "\x7fELF")
		if got := m.find(t, Etcd); got != "" || !m.heard("etcd: skipped", "it does not run") {
			t.Errorf("Find() = %q, said %q", got, m.said)
		}
	})
}

func TestProgramsInPath(t *testing.T) {
	kubectl := func(version string) string {
		return `echo '{"clientVersion": {"major": "1", "gitVersion": "` + version + `"}}'`
	}
	tests := map[string]struct {
		program, script string
		skipped         []string // nil: it is taken
	}{
		"kubectl of our version":           {Kubectl, kubectl("v1.37.2"), nil},
		"kubectl one minor version before": {Kubectl, kubectl("v1.36.0"), nil},
		"kubectl one minor version later":  {Kubectl, kubectl("v1.38.4"), nil},
		"kubectl of a vendor":              {Kubectl, kubectl("v1.37.4-dispatcher"), nil},
		"kubectl two minor versions before": {
			Kubectl, kubectl("v1.35.9"), []string{"kubectl: skipped", "it is v1.35.9, more than one minor version from Kubernetes v1.37.2"},
		},
		"kubectl of an old vendor":      {Kubectl, kubectl("v1.32.4-dispatcher"), []string{"v1.32.4, more than one minor version"}},
		"kubectl without a version":     {Kubectl, "echo '{}'", []string{"kubectl version --client -o json` does not say a version"}},
		"kubectl with no real one":      {Kubectl, kubectl("vx"), []string{"kubectl version --client -o json`"}},
		"kubectl that fails":            {Kubectl, "echo Segmentation fault >&2; exit 139", []string{"it does not run: exit status 139"}},
		"Helm of our version":           {Helm, "echo v4.3.1+gabc1234", nil},
		"Helm with a warning":           {Helm, "echo WARNING: permissions >&2; echo v3.14.0+g3fc9f4b", nil},
		"the oldest Helm that fits":     {Helm, "echo v3.14.0+g3fc9f4b", nil},
		"the newest Helm that does not": {Helm, "echo v3.13.3+gc8b9489", []string{"helm: skipped", "it is v3.13.3", "v3.14 or later is needed"}},
		"Helm 2":                        {Helm, "echo Client: v2.16.0+ge13bc94", []string{"does not say a version"}},
		"etcd is not looked for":        {Etcd, "echo etcd Version: 3.7.1", []string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			path := m.script(t, "bin/"+test.program, test.script)
			if test.skipped != nil {
				path = ""
			}
			if got := m.find(t, test.program); got != path {
				t.Errorf("Find() = %q, want %q", got, path)
			}
			if len(test.skipped) > 0 && !m.heard(test.skipped...) {
				t.Errorf("no line of %q has all of %q", m.said, test.skipped)
			}
		})
	}
}

// A program that hangs, or whose child does, costs only the time that it is given.
func TestHangingProgramInPath(t *testing.T) {
	for name, script := range map[string]string{"itself": "exec /bin/sleep 30", "its child": "/bin/sleep 30 & wait"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.script(t, "bin/kubectl", script)
			f := m.finder()
			f.limits.version = 50 * time.Millisecond
			path, _, err := f.Find(t.Context(), Kubectl)
			if path != "" || err != nil || !m.heard("kubectl: skipped", "did not end within 50ms") {
				t.Errorf("Find() = %q, %v; said %q", path, err, m.said)
			}
		})
	}
}

// The tests of Sallyport take the versions that they were written for.
func TestPathIsNotForTests(t *testing.T) {
	m := newMachine(t)
	m.script(t, "bin/helm", "echo v4.3.1+gabc1234")
	m.options.PATH = false
	if got := m.find(t, Helm); got != "" {
		t.Errorf("Find() = %q", got)
	}
}

func TestSumOf(t *testing.T) {
	a, b := sum([]byte("a")), sum([]byte("b"))
	tests := map[string]struct{ sums, want string }{
		"a checksum alone":         {a, a},
		"with a newline":           {a + "\n", a},
		"one of several":           {b + "  other\n" + a + "  file\n", a},
		"of a binary file":         {a + " *file\n", a},
		"none for the file":        {b + "  other\n", ""},
		"the name within another":  {b + "  file.sig\n", ""},
		"a page":                   {"<!DOCTYPE html>\n<html>" + a + "</html>\n", ""},
		"too short":                {a[1:] + "  file\n", ""},
		"nothing":                  {"", ""},
		"a comment and a checksum": {"# comment\n" + a + "  file\n", a},
	}
	got, want := map[string]string{}, map[string]string{}
	for name, test := range tests {
		got[name], want[name] = sumOf(test.sums, "file"), test.want
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sumOf() (-want +got):\n%s", diff)
	}
}

// A typing error in the known checksums would send everybody to the build.
func TestKnownChecksumsAreReadable(t *testing.T) {
	for line := range strings.Lines(pins) {
		if _, url, _ := strings.Cut(strings.TrimSpace(line), "  "); !strings.HasPrefix(line, "#") && sumOf(line, url) == "" {
			t.Errorf("sha256.txt: no checksum and URL: %s", line)
		}
	}
}
