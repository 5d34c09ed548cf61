package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"
)

// scanning leaves a test to make scan: it looks at what is released, and not at what the code does.
func scanning(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to make scan")
	}
}

// What is in the program has a licence that allows to pass it on, and no vulnerability that hack/vulnerabilities.txt does not know.
func TestProgramIsScanned(t *testing.T) {
	scanning(t)
	// The program has its symbol table, by which govulncheck knows what the linker kept.
	program := filepath.Join(t.TempDir(), "sallyport")
	if _, err := output(t.Context(), root, nil, "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-o", program, "./cmd/sallyport"); err != nil {
		t.Fatal(err)
	}
	t.Run("licences", func(t *testing.T) {
		r := &release{build: &build{options: options{root: root, platforms: []platform{host}}, made: map[platform]string{host: program}}}
		modules, err := r.modules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(modules) < 50 {
			t.Errorf("the program has %d modules", len(modules))
		}
		for _, refusal := range refused(modules) {
			t.Error(refusal)
		}
	})
	t.Run("vulnerabilities", func(t *testing.T) {
		accepted, err := os.ReadFile(root + "/hack/vulnerabilities.txt")
		if err != nil {
			t.Fatal(err)
		}
		// make lint of an old commit goes on to pass: make scan asks what day it is.
		var now time.Time
		if os.Getenv(beforeRelease) != "" {
			now = time.Now()
		}
		for _, complaint := range judged(vulnerabilities(t, program), string(accepted), now) {
			t.Error(complaint)
		}
	})
}

// allowed are the licences of modules in the program, as SPDX names them.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "Zlib"}

// unshipped are the licences of what is in modules and not in the program: documentation.
var unshipped = map[string]string{"github.com/opencontainers/go-digest": "CC-BY-SA-4.0"}

// refused returns which modules have licences that are not allowed.
func refused(modules []module) (complaints []string) {
	for _, m := range modules {
		for _, id := range m.ids {
			if !slices.Contains(allowed, id) && unshipped[m.path] != id {
				complaints = append(complaints, m.path+" "+m.version+" has the licence "+id)
			}
		}
	}
	return complaints
}

func TestRefused(t *testing.T) {
	got := refused([]module{{path: "a", version: "v1.0.0", ids: []string{"MIT"}}, {path: "b", version: "v2.0.0", ids: []string{"BSD-3-Clause", "AGPL-3.0"}}})
	if diff := cmp.Diff([]string{"b v2.0.0 has the licence AGPL-3.0"}, got); diff != "" {
		t.Error(diff)
	}
}

// A vulnerability is one whose function the program has.
type vulnerability struct{ id, module, version, fixed string }

// vulnerabilities returns what govulncheck finds in a program, by the database of hack/tools/vulndb.mod.
func vulnerabilities(t *testing.T, program string) (all []vulnerability) {
	t.Helper()
	out, err := output(t.Context(), root, nil, "go", "mod", "download", "-modfile=hack/tools/vulndb.mod", "-json", "golang.org/x/vulndb")
	if err != nil {
		t.Skipf("vulnerabilities are NOT looked for, because their database cannot be downloaded: %.200s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	var database struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &database); err != nil {
		t.Fatal(err)
	}
	if out, err = output(t.Context(), root, nil, "go", "tool", "-modfile=hack/tools/go.mod", "govulncheck", "-mode=binary", "-format=json",
		"-db=file://"+filepath.Join(database.Dir, "data", "osv"), program); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var said struct {
			Finding struct {
				OSV   string `json:"osv"`
				Fixed string `json:"fixed_version"`
				Trace []struct{ Module, Version, Function string }
			}
		}
		if err := d.Decode(&said); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if f := said.Finding; len(f.Trace) > 0 && f.Trace[0].Function != "" {
			v := vulnerability{f.OSV, f.Trace[0].Module, f.Trace[0].Version, f.Fixed}
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
}

// judged returns what is wrong with vulnerabilities, and with the list of those that are accepted, on a day.
func judged(found []vulnerability, list string, now time.Time) (complaints []string) {
	accepted, used := map[string]time.Time{}, map[string]bool{}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) < 3 {
			return []string{"not an ID, a day and a reason: " + line}
		}
		until, err := time.Parse(time.DateOnly, fields[1])
		if err != nil {
			return []string{err.Error()}
		}
		accepted[fields[0]] = until
	}
	for _, v := range found {
		entry := v.id
		for name := range accepted {
			release, ok := strings.CutPrefix(name, "stdlib@")
			if ok && v.module == "stdlib" && v.fixed != "" && version.MustParseGeneric(release).AtLeast(version.MustParseGeneric(v.fixed)) {
				entry = name
			}
		}
		used[entry] = true
		switch until, ok := accepted[entry]; {
		case !ok:
			complaints = append(complaints, v.id+": "+v.module+" "+v.version+", fixed in \""+v.fixed+"\": https://pkg.go.dev/vuln/"+v.id)
		case now.After(until):
			complaints = append(complaints, v.id+": "+v.module+" "+v.version+" was accepted until "+until.Format(time.DateOnly))
		}
	}
	for name := range accepted {
		// Whether those of the standard library are found depends on the Go release of who runs this.
		if !used[name] && !strings.HasPrefix(name, "stdlib@") {
			complaints = append(complaints, name+" is not found any more: remove it from hack/vulnerabilities.txt")
		}
	}
	slices.Sort(complaints)
	return complaints
}

func TestJudged(t *testing.T) {
	list := "# a comment\nstdlib@v1.26.9 2027-01-31 of who builds\nGO-1 2027-01-31 not reached\n"
	one := vulnerability{"GO-1", "example.com/a", "v1.0.0", "v1.1.0"}
	old, recent := vulnerability{"GO-2", "stdlib", "v1.26.8", "v1.26.9"}, vulnerability{"GO-3", "stdlib", "v1.26.8", "v1.26.10"}
	for name, tc := range map[string]struct {
		found []vulnerability
		list  string
		day   string
		want  []string
	}{
		"what is accepted":            {[]vulnerability{one, old}, list, "2027-01-31", nil},
		"what is accepted no longer":  {[]vulnerability{one}, list, "2027-02-01", []string{"GO-1: example.com/a v1.0.0 was accepted until 2027-01-31"}},
		"what is not accepted":        {[]vulnerability{one}, "", "2027-01-01", []string{`GO-1: example.com/a v1.0.0, fixed in "v1.1.0": https://pkg.go.dev/vuln/GO-1`}},
		"a later release of Go":       {[]vulnerability{one, recent}, list, "2027-01-01", []string{`GO-3: stdlib v1.26.8, fixed in "v1.26.10": https://pkg.go.dev/vuln/GO-3`}},
		"what is found no more":       {nil, list, "2027-01-01", []string{"GO-1 is not found any more: remove it from hack/vulnerabilities.txt"}},
		"a line that gives no reason": {nil, "GO-1 2027-01-31\n", "2027-01-01", []string{"not an ID, a day and a reason: GO-1 2027-01-31\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			day, err := time.Parse(time.DateOnly, tc.day)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, judged(tc.found, tc.list, day)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The tree has no secrets, and gitleaks would find a key and a token.
func TestSecrets(t *testing.T) {
	scanning(t)
	if found := secrets(t, root); len(found) > 0 {
		t.Errorf("gitleaks finds, if hack/gitleaks.toml is considered: %v", found)
	}
	folder := t.TempDir()
	// In parts, so that this file has none.
	put(t, filepath.Join(folder, "deep", "key.pem"), "-----BEGIN RSA PRIVATE"+" KEY-----\n"+strings.Repeat("MIIEowIBAAKCAQEAx", 20)+"\n-----END RSA PRIVATE"+" KEY-----\n")
	put(t, filepath.Join(folder, "ci.yaml"), "token: ghp"+"_x7Qk2LmP9vRt4WzY8sNb3HdJ6fGc1TaE5uKo\n")
	if diff := cmp.Diff([]string{"ci.yaml: github-pat", "deep/key.pem: private-key"}, secrets(t, folder)); diff != "" {
		t.Error(diff)
	}
}

// secrets returns which files gitleaks finds secrets in, and of which kind.
func secrets(t *testing.T, folder string) (found []string) {
	t.Helper()
	folder, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Abs(root + "/hack/gitleaks.toml")
	if err != nil {
		t.Fatal(err)
	}
	// It runs in the folder, so that paths are relative to it, as the configuration has them. go tool does not: it only builds gitleaks.
	out, err := output(t.Context(), root, nil, "go", "tool", "-modfile=hack/tools/gitleaks.mod", "-n", "gitleaks")
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	if _, err := output(t.Context(), folder, nil, strings.TrimSpace(out), "dir", ".", "--config", config, "--no-banner", "--redact", "--exit-code=0",
		"--report-format=json", "--report-path", report); err != nil {
		t.Fatal(err)
	}
	var leaks []struct{ File, RuleID string }
	if err := json.Unmarshal(read(t, report), &leaks); err != nil {
		t.Fatal(err)
	}
	for _, leak := range leaks {
		found = append(found, filepath.ToSlash(leak.File)+": "+leak.RuleID)
	}
	slices.Sort(found)
	return found
}
