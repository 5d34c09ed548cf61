//go:build cdi

package cdi

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// serveS3 starts a server of S3 that asks for the account.
func (s *source) serveS3(t *testing.T) {
	server := s.s3Command(context.WithoutCancel(t.Context()), user, password, "serve")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.s3Address = strings.TrimSpace(line)
}

func (s *source) s3Command(ctx context.Context, id, key string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, s.s3, args...)
	command.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+id, "AWS_SECRET_ACCESS_KEY="+key)
	return command
}

// toS3 stores the image of a namespace.
func (s *site) toS3(namespace string) {
	put := s.source.s3Command(s.Context(), user, password, "put", image(namespace, "").Spec.URL)
	put.Env = append(put.Env, "S3_ADDRESS="+s.source.s3Address)
	put.Stdin = bytes.NewReader(data(namespace))
	if out, err := put.CombinedOutput(); err != nil {
		s.Fatalf("storing an object: %v: %s", err, out)
	}
}

// download is what a client of S3 prints.
type download struct {
	io.Reader
	command *exec.Cmd
	said    *bytes.Buffer
}

// Read implements io.Reader. At the end it says what went wrong.
func (d *download) Read(b []byte) (int, error) {
	n, err := d.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		if d.command.Wait() != nil {
			err = errors.New(strings.TrimSpace(d.said.String()))
		}
	}
	return n, err
}

// Close implements io.Closer.
func (d *download) Close() error { return d.command.Process.Kill() }

func (s *source) openS3(ctx context.Context, settings map[string]string) (io.ReadCloser, int64, error) {
	d := &download{said: &bytes.Buffer{}}
	d.command = s.s3Command(ctx, settings["IMPORTER_ACCESS_KEY_ID"], settings["IMPORTER_SECRET_KEY"], "get", settings["IMPORTER_ENDPOINT"])
	d.command.Env = append(d.command.Env, "S3_ADDRESS="+s.Listener.Addr().String())
	d.command.Stderr = d.said
	out, err := d.command.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	d.Reader = out
	return d, int64(len(data(""))), d.command.Start()
}

// fromS3 passes the request on to the server of S3.
func fromS3(s *source, w http.ResponseWriter, r *http.Request, _ int) {
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s.s3Address})
		r.Out.Host = r.In.Host // it is signed
	}}
	proxy.ServeHTTP(w, r)
}

// fromRegistry answers as a registry does, and privateRegistry asks for the account.
func fromRegistry(s *source, w http.ResponseWriter, r *http.Request, _ int) {
	s.registry.ServeHTTP(w, r)
}

func privateRegistry(s *source, w http.ResponseWriter, r *http.Request, nth int) {
	if id, key, _ := r.BasicAuth(); id != user || key != password {
		w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	fromRegistry(s, w, r, nth)
}

// otherManifest serves a manifest that does not have the digest.
func otherManifest(s *source, w http.ResponseWriter, r *http.Request, nth int) {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/") {
		fromRegistry(s, w, r, nth)
		return
	}
	answer := httptest.NewRecorder()
	fromRegistry(s, answer, r, nth)
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	send(w, append(answer.Body.Bytes(), ' '))
}

// toRegistry pushes the image of a namespace as the disk of a container image, and returns its URL.
func (s *site) toRegistry(namespace string) string {
	var archive bytes.Buffer
	w, b := tar.NewWriter(&archive), data(namespace)
	s.Must(w.WriteHeader(&tar.Header{Name: "disk/disk.img", Size: int64(len(b)), Mode: 0o440}))
	_, err := w.Write(b)
	s.Must(errors.Join(err, w.Close()))
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	s.Must(err)
	container, err := mutate.AppendLayers(empty.Image, layer)
	s.Must(err)
	digest, err := container.Digest()
	s.Must(err)
	repository := "registry.test/" + namespace + "/disk"
	ref, err := name.ParseReference(repository+"@"+digest.String(), name.Insecure)
	s.Must(err)
	s.source.mu.Lock()
	serve := s.source.modes[namespace]
	delete(s.source.modes, namespace)
	s.source.mu.Unlock()
	s.Must(remote.Write(ref, container, remote.WithTransport(s.source.client.Transport), remote.WithContext(s.Context())))
	s.source.mu.Lock()
	s.source.modes[namespace], s.source.asked[namespace] = serve, 0
	s.source.mu.Unlock()
	return "docker://" + repository + "@" + digest.String()
}

// openRegistry reads the disk of a container image. What does not have its digest is an error.
func (s *source) openRegistry(ctx context.Context, settings map[string]string) (io.ReadCloser, int64, error) {
	ref, err := name.NewDigest(strings.TrimPrefix(settings["IMPORTER_ENDPOINT"], "docker://"), name.Insecure)
	if err != nil {
		return nil, 0, err
	}
	account := authn.Anonymous
	if id := settings["IMPORTER_ACCESS_KEY_ID"]; id != "" {
		account = authn.FromConfig(authn.AuthConfig{Username: id, Password: settings["IMPORTER_SECRET_KEY"]})
	}
	container, err := remote.Image(ref, remote.WithTransport(s.client.Transport), remote.WithContext(ctx), remote.WithAuth(account),
		remote.WithRetryStatusCodes(), remote.WithRetryPredicate(func(error) bool { return false }))
	if err != nil {
		return nil, 0, err
	}
	layers, err := container.Layers()
	if err != nil {
		return nil, 0, err
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return nil, 0, err
		}
		all, err := io.ReadAll(content) // verifies the digest
		if err := errors.Join(err, content.Close()); err != nil {
			return nil, 0, err
		}
		files := tar.NewReader(bytes.NewReader(all))
		for {
			file, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, 0, err
			}
			if strings.HasPrefix(file.Name, "disk/") {
				return io.NopCloser(files), file.Size, nil
			}
		}
	}
	return nil, 0, fmt.Errorf("the container image has no disk")
}
