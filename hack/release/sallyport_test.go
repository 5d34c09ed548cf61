package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

// beforeRelease is the variable of the environment that is set for what runs before a release.
const beforeRelease = "SALLYPORT_TEST_RELEASE"

// releasing leaves a test to make test-release: it compiles other programs than the rest of the tests, or links Sallyport repeatedly.
func releasing(t *testing.T) {
	t.Helper()
	if os.Getenv(beforeRelease) == "" {
		t.Skip("left to make test-release")
	}
}

// krew itself validates the manifest and installs the plugin of each platform from its archive.
func TestKrew(t *testing.T) {
	releasing(t)
	tools := t.TempDir()
	if _, err := output(t.Context(), root, nil, "go", "build", "-trimpath", "-modfile=hack/release/krew.mod", "-o", tools+"/",
		"sigs.k8s.io/krew/cmd/krew", "sigs.k8s.io/krew/cmd/validate-krew-manifest"); err != nil {
		t.Fatal(err)
	}
	o := tried(tree(t), t.TempDir(), "")
	o.platforms, o.imagePlatforms = platforms, []platform{host}
	dist, _ := releases(t, o)
	manifest := filepath.Join(dist, "sallyport.yaml")
	if _, err := output(t.Context(), "", nil, filepath.Join(tools, "validate-krew-manifest"), "-skip-install", "-manifest", manifest); err != nil {
		t.Error(err)
	}
	for _, p := range platforms {
		archive := (&release{build: &build{options: o}, dist: dist}).archive(plugin, p)
		if !strings.Contains(string(read(t, manifest)), "uri: https://example.com/files/v0.1.0-rc.1/"+filepath.Base(archive)+"\n") {
			t.Errorf("the manifest does not name %s", archive)
		}
		home := t.TempDir()
		environ := append(os.Environ(), "KREW_ROOT="+home, "KREW_OS="+p.os, "KREW_ARCH="+p.arch)
		if _, err := output(t.Context(), "", environ, filepath.Join(tools, "krew"), "install", "--manifest", manifest, "--archive", archive); err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		installed := filepath.Join(home, "store", "sallyport", o.version)
		for _, file := range []string{p.executable(plugin), "LICENSE", "THIRD_PARTY_LICENSES.txt"} {
			if _, err := os.Stat(filepath.Join(installed, file)); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

// The commit of this repository, cloned into two folders, gives equal releases. Chart and program of the registry run, and know their version.
func TestSallyport(t *testing.T) {
	releasing(t)
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := output(t.Context(), source, gitEnvironment(), "git", "rev-parse", "--verify", "HEAD"); err != nil {
		t.Skipf("a release is made of a commit, and this is no clone: %v", err)
	}
	o := options{version: "v0.1.0", push: serve(t), program: "./cmd/sallyport", platforms: []platform{host}, imagePlatforms: []platform{host}}
	var sums []string
	for range 2 {
		o.root, o.out = filepath.Join(t.TempDir(), "clone"), t.TempDir()
		git(t, "", "clone", "-q", source, o.root)
		dist, _ := releases(t, o)
		sums = append(sums, string(read(t, filepath.Join(dist, "SHA256SUMS"))))
	}
	if diff := cmp.Diff(sums[0], sums[1]); diff != "" {
		t.Error(diff)
	}

	audit := filepath.Join(t.TempDir(), "audit.log")
	cp, err := env.Start(t.Context(), env.Options{AuditLog: audit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	program := filepath.Join(t.TempDir(), "sallyport")
	if err := os.WriteFile(program, programOf(t, o), 0o755); err != nil {
		t.Fatal(err)
	}
	installFrom(t, cp, o.push, program)

	folder := t.TempDir()
	if err := install.Plugin(folder, program); err != nil {
		t.Fatal(err)
	}
	printed, err := output(t.Context(), "", append(os.Environ(), "KUBECONFIG="+cp.Kubeconfig()), filepath.Join(folder, plugin), "version")
	if err != nil || !strings.HasPrefix(printed, "Client Version: v0.1.0\nReplica Version: v0.1.0 (") {
		t.Errorf("%v: %s", err, printed)
	}
	agent := fmt.Sprintf(`"userAgent":"sallyport/v0.1.0 (%s/%s) kubernetes/%s`, host.os, host.arch, git(t, o.root, "rev-parse", "HEAD")[:7])
	if !strings.Contains(string(read(t, audit)), agent) {
		t.Errorf("no request has %s", agent)
	}
}

// programOf returns the program in the image that was pushed.
func programOf(t *testing.T, o options) []byte {
	t.Helper()
	tag, err := name.NewTag(o.push + "/sallyport:" + o.version)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: host.os, Architecture: host.arch}))
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(pushed)
	defer content.Close()
	return untar(t, content)[inImage[1:]].text
}

// installFrom installs the chart of a registry, and runs a program with the arguments of its Deployment.
func installFrom(t *testing.T, cp *env.ControlPlane, push, program string) {
	t.Helper()
	s, err := install.Unpack(cp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Remove() })
	if err := os.RemoveAll(s.Chart()); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := cp.Helm(t.Context(), "pull", "oci://"+push+"/charts/sallyport", "--version", "0.1.0", "--plain-http", "--untar",
		"--untardir", filepath.Dir(s.Chart())); code != 0 {
		t.Fatal(stderr)
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return s.Install(ctx) }, s.Adopt,
		func(ctx context.Context) error { return s.Resume(ctx, install.Options{Binary: program}) },
	} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
