package lookup

import (
	"context"
	_ "embed" // for the known checksums
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// pins are checksums of releases.
//
//go:embed sha256.txt
var pins string

// release is where a publisher has a program.
type release struct {
	url    string
	sums   string // the URL of its checksum
	member string // the name of the program in the archive; "" if the file is the program itself
}

// version returns the version of a program that is downloaded.
func (f *Finder) version(program string) string {
	switch program {
	case Etcd:
		return f.Etcd
	case Helm:
		return f.Helm
	default:
		return f.Kubernetes
	}
}

// release returns where the publisher has a program for this system.
func (f *Finder) release(program, arch string) release {
	const system = runtime.GOOS
	of := f.version(program)
	switch program {
	case Etcd:
		name := "etcd-" + of + "-" + system + "-" + arch
		folder := "https://github.com/etcd-io/etcd/releases/download/" + of + "/"
		return release{url: folder + name + ".tar.gz", sums: folder + "SHA256SUMS", member: name + "/" + Etcd}
	case Helm:
		file := "https://get.helm.sh/helm-" + of + "-" + system + "-" + arch + ".tar.gz"
		return release{url: file, sums: file + ".sha256sum", member: system + "-" + arch + "/" + Helm}
	default:
		file := "https://dl.k8s.io/" + of + "/bin/" + system + "/" + arch + "/" + program
		return release{url: file, sums: file + ".sha256"}
	}
}

// downloaded returns the path of a downloaded program. The version and the platform are in it, so a file there always fits.
func (f *Finder) downloaded(program string) string {
	return filepath.Join(f.Downloads, f.version(program)+"-"+runtime.GOOS+"-"+runtime.GOARCH, program)
}

// Checksums returns the content of sha256.txt for the versions of f, as the release sites publish it.
func (f *Finder) Checksums(ctx context.Context) (string, error) {
	lines, _, _ := strings.Cut(pins, "\n") // what the file says about itself
	for _, program := range []string{Etcd, APIServer, ControllerManager, Kubectl, Helm} {
		for _, arch := range []string{"amd64", "arm64"} {
			r := f.release(program, arch)
			sum, err := f.published(ctx, r)
			if err != nil {
				return "", err
			}
			lines += "\n" + sum + "  " + r.url
		}
	}
	return lines + "\n", nil
}

// checksum returns the SHA-256 of a release: the known one, else the published one.
func (f *Finder) checksum(ctx context.Context, r release) (string, error) {
	if sum := sumOf(f.pins, r.url); sum != "" {
		return sum, nil
	}
	return f.published(ctx, r)
}

// published returns the SHA-256 of a release out of the publisher's checksum file.
func (f *Finder) published(ctx context.Context, r release) (string, error) {
	from, err := mirrored(r.sums)
	if err != nil {
		return "", err
	}
	if !secure(from) {
		return "", fmt.Errorf("the checksum of %s is not known in advance, and %s is not https", path.Base(r.url), from.Redacted())
	}
	var sums strings.Builder
	if err := f.fetch(ctx, from, &sums, 1<<20, ""); err != nil {
		return "", err
	}
	sum := sumOf(sums.String(), path.Base(r.url))
	if sum == "" {
		return "", fmt.Errorf("%s has no checksum of %s: a proxy may have answered in its place", from.Redacted(), path.Base(r.url))
	}
	return sum, nil
}

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// sumOf returns the checksum of a file out of the output of sha256sum, or out of a text that is a checksum; "" if it has none.
func sumOf(sums, file string) string {
	if sum := strings.TrimSpace(sums); sha256Hex.MatchString(sum) {
		return sum
	}
	for line := range strings.Lines(sums) {
		fields := strings.Fields(line)
		if len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == file && sha256Hex.MatchString(fields[0]) {
			return fields[0]
		}
	}
	return ""
}

// mirrored returns the URL that is asked in place of a publisher's.
func mirrored(publisher string) (*url.URL, error) {
	u, err := url.Parse(publisher)
	if err != nil {
		return nil, err
	}
	given := os.Getenv(MirrorVariable)
	if given == "" {
		return u, nil
	}
	mirror, err := url.Parse(given)
	if err != nil || mirror.Host == "" {
		return nil, fmt.Errorf("%s=%s is not a URL, such as https://mirror.example/downloads", MirrorVariable, given)
	}
	return mirror.JoinPath(u.Host, u.Path), nil
}
