package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/test/support/env"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	env.Main(m, env.Options{})
}

// root is the folder of this repository.
const root = "../.."

// host is the platform that tests run on.
var host = platform{runtime.GOOS, runtime.GOARCH}

// tree makes a repository in a folder of its own: the chart and a program that is built quickly. All of them have the same commit.
func tree(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for from, to := range map[string]string{
		root + "/go.mod": "go.mod", root + "/go.sum": "go.sum", root + "/LICENSE": "LICENSE", "testdata/tiny.go.txt": "cmd/sallyport/main.go",
		root + "/cmd/internal/version/version.go": "cmd/internal/version/version.go",
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(folder, to), string(text))
	}
	if err := os.CopyFS(filepath.Join(folder, chartFolder), os.DirFS(filepath.Join(root, chartFolder))); err != nil {
		t.Fatal(err)
	}
	git(t, folder, "init", "-q")
	commit(t, folder)
	return folder
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, folder string) {
	t.Helper()
	git(t, folder, "add", "-A")
	git(t, folder, "commit", "-q", "-m", "a commit")
}

// git runs it without the user's settings, at a fixed time.
func git(t *testing.T, folder string, args ...string) string {
	t.Helper()
	out, err := output(t.Context(), folder, gitEnvironment(), "git", args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// gitEnvironment has nothing of the user's own.
func gitEnvironment() []string {
	environ := append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		environ = append(environ, "GIT_"+who+"_NAME=x", "GIT_"+who+"_EMAIL=x@example.com", "GIT_"+who+"_DATE=2026-01-02T03:04:05Z")
	}
	return environ
}

// tried is a release of a folder, for few platforms.
func tried(folder, out, push string) options {
	return options{
		root: folder, out: out, version: "v0.1.0-rc.1", push: push, program: "./cmd/sallyport", downloads: "https://example.com/files/",
		platforms: []platform{host, {"windows", "amd64"}}, imagePlatforms: imagePlatforms,
	}
}

// releases runs a release and returns the folder of its files and what it printed.
func releases(t *testing.T, o options) (dist, printed string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), &out, o); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(o.out, o.version), out.String()
}

// A member is a file of an archive.
type member struct {
	Mode int64
	When string
	text []byte
}

func untar(t *testing.T, r io.Reader) map[string]member {
	t.Helper()
	all := map[string]member{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s belongs to a user of this machine", header.Name)
		}
		all[header.Name] = member{header.Mode, header.ModTime.UTC().Format("2006-01-02 15:04:05"), text}
	}
}

// unpack returns the files of an archive, by its extension.
func unpack(t *testing.T, path string) map[string]member {
	t.Helper()
	if filepath.Ext(path) == ".zip" {
		return unzip(t, path)
	}
	text := read(t, path)
	if filepath.Ext(path) == ".tar" {
		return untar(t, bytes.NewReader(text))
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, z)
}

func unzip(t *testing.T, path string) map[string]member {
	t.Helper()
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	all := map[string]member{}
	for _, f := range archive.File {
		source, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(source)
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name] = member{int64(f.Mode().Perm()), f.Modified.UTC().Format("2006-01-02 15:04:05"), text}
	}
	return all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runs returns what a program prints that is in memory.
func runs(ctx context.Context, t *testing.T, program []byte, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sallyport")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}
