package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tags are the build tags of the Makefile.
const tags = "kustomize_disable_go_plugin_support"

// The states of a tree, as kubectl version names them.
const clean, dirty = "clean", "dirty"

// A platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

// String returns the form of file names.
func (p platform) String() string { return p.os + "_" + p.arch }

func (p platform) executable(name string) string {
	if p.os == "windows" {
		return name + ".exe"
	}
	return name
}

// A build makes programs of one commit.
type build struct {
	options
	revision, treeState string
	// when is the time of all files: SOURCE_DATE_EPOCH, or when the revision was committed.
	when time.Time
	// work is a folder for what is not released.
	work string
	made map[platform]string
}

func newBuild(ctx context.Context, o options) (*build, error) {
	b := &build{options: o, treeState: clean, made: map[platform]string{}}
	head, err := output(ctx, o.root, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	revision, seconds, _ := strings.Cut(strings.TrimSpace(head), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reading the time of the build (SOURCE_DATE_EPOCH): %w", err)
	}
	changes, err := output(ctx, o.root, nil, "git", "status", "--porcelain")
	if changes != "" {
		b.treeState = dirty
	}
	b.revision, b.when = revision, time.Unix(unix, 0).UTC()
	return b, err
}

// binary returns the program for a platform, which it builds once.
func (b *build) binary(ctx context.Context, p platform) (path string, err error) {
	if b.made[p] != "" {
		return b.made[p], nil
	}
	path = filepath.Join(b.work, "bin", p.String())
	environ := append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0",
		// What the user may have set must not make a difference.
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	_, err = output(ctx, b.root, environ, "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", b.linkerFlags(), "-o", path, b.program)
	b.made[p] = path
	return path, err
}

// linkerFlags set the version: ours, and the one of client-go, which is in the user agents of all clients.
func (b *build) linkerFlags() string {
	const ours, clients = "sallyport.dev/sallyport/cmd/internal/version.", "k8s.io/client-go/pkg/version."
	flags := []string{
		"-s", "-w", "-X", ours + "version=" + b.version, "-X", ours + "revision=" + b.revision, "-X", ours + "treeState=" + b.treeState,
		"-X", ours + "date=" + b.when.Format(time.RFC3339), "-X", clients + "gitVersion=" + b.version, "-X", clients + "gitCommit=" + b.revision,
	}
	return strings.Join(flags, " ")
}

// output runs a command and returns what it printed. Without an environment it has that of this process.
func output(ctx context.Context, dir string, environ []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	var complaint bytes.Buffer
	command.Dir, command.Env, command.Stderr = dir, environ, &complaint
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w\n%s", name, args[0], err, complaint.String())
	}
	return string(out), nil
}
