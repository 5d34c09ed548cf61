package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/test/depth"
)

// krew itself validates the manifest and installs the plugin of each platform from its archive.
func TestKrew(t *testing.T) {
	depth.Only(t)
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

// The commit of this repository, cloned into two folders, gives equal releases, and a program that knows its version.
func TestSallyportIsReproducible(t *testing.T) {
	depth.Only(t)
	var sums []string
	for range 2 {
		clone := filepath.Join(t.TempDir(), "clone")
		source, err := filepath.Abs(root)
		if err != nil {
			t.Fatal(err)
		}
		git(t, "", "clone", "-q", source, clone)
		o := options{
			root: clone, out: t.TempDir(), version: "v0.1.0", program: "./cmd/sallyport", platforms: []platform{host}, imagePlatforms: []platform{host},
		}
		if err := run(t.Context(), io.Discard, o); err != nil {
			t.Fatal(err)
		}
		dist := filepath.Join(o.out, o.version)
		sums = append(sums, string(read(t, filepath.Join(dist, "SHA256SUMS"))))
		program := unpack(t, filepath.Join(dist, "sallyport_v0.1.0_"+host.String()+".tar.gz"))["sallyport"].text
		var known struct {
			ClientVersion struct{ GitVersion, GitCommit string }
		}
		if err := json.Unmarshal(runs(t.Context(), t, program, "version", "-o", "json"), &known); err != nil {
			t.Fatal(err)
		}
		if is := known.ClientVersion; is.GitVersion != "v0.1.0" || is.GitCommit != git(t, clone, "rev-parse", "HEAD") {
			t.Errorf("the program says %v", is)
		}
	}
	if diff := cmp.Diff(sums[0], sums[1]); diff != "" {
		t.Error(diff)
	}
}
