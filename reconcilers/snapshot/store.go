// Package snapshot looks after the snapshots of machines in an OCI registry, which agents on nodes push and pull. A machine has a
// repository of its own, by its namespace and UID, in which each move has a tag: nothing of one machine, or of one move, can be taken
// for that of another. The registry is spoken to over TLS only, with nobody's credentials but those that the machine names.
package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// maxTags is how many tags one Discard removes: a machine that nobody meddles with has one or two. maxPages is how many pages their
// list may come in.
const maxTags, maxPages = 1000, 100

// Store is the registry with the snapshots of all machines. It is safe for concurrent use.
type Store struct {
	prefix    name.Repository
	live      client.Reader
	transport http.RoundTripper
}

// New returns the Store whose repositories begin with that, such as registry.example.com/machines. live reads Secrets past every cache. A
// nil transport is that of net/http. Requests, and with them credentials, go to the registry's own host and to tokenHosts only.
func New(repository string, live client.Reader, transport http.RoundTripper, tokenHosts ...string) (*Store, error) {
	prefix, err := name.NewRepository(repository, name.StrictValidation)
	if err == nil { // that of a machine with the longest names has to be one, too
		_, err = name.NewRepository(path.Join(repository, strings.Repeat("n", 63), strings.Repeat("u", 64)), name.StrictValidation)
	}
	if err != nil || path.Clean(repository) != repository {
		return nil, fmt.Errorf("%q is not a prefix of repositories: give a registry and a path, such as registry.example.com/machines", repository)
	}
	if transport == nil {
		transport = http.DefaultTransport
	}
	hosts := []string{strings.TrimSuffix(prefix.RegistryStr(), ":443")}
	for _, host := range tokenHosts {
		if _, err := name.NewRegistry(host, name.StrictValidation); err != nil {
			return nil, fmt.Errorf("%q is not a host for tokens: give a host such as auth.example.com, with its port unless that is 443", host)
		}
		hosts = append(hosts, strings.ToLower(strings.TrimSuffix(host, ":443")))
	}
	return &Store{prefix: prefix, live: live, transport: bounded{transport, hosts}}, nil
}

// repository is where the snapshots of the machine are.
func (s *Store) repository(m runtime.Machine) name.Repository {
	return s.prefix.Repo(s.prefix.RepositoryStr(), m.Namespace, string(m.UID))
}

// Ref is where an agent is asked to push the snapshot of the machine's Migration to, which must be set.
func (s *Store) Ref(m runtime.Machine) string {
	return s.repository(m).Tag(string(m.Migration.ID)).Name()
}

// Digest asks the registry for the snapshot of the machine's Migration, which must be set. It is empty if the registry says for certain
// that there is none: any doubt is an error.
func (s *Store) Digest(ctx context.Context, m runtime.Machine) (string, error) {
	a, err := s.open(ctx, m)
	if err != nil {
		return "", err
	}
	return a.digest(ctx, a.repository.Tag(string(m.Migration.ID)))
}

// Left returns one of the snapshots that the machine's repository has, or nothing if it has none.
func (s *Store) Left(ctx context.Context, m runtime.Machine) (string, error) {
	a, err := s.open(ctx, m)
	if err != nil {
		return "", err
	}
	tags, _, err := a.tags(ctx)
	if err != nil || len(tags) == 0 {
		return "", err
	}
	return tags[0].Name(), nil
}

// Discard removes whatever the machine's repository has, also what an earlier Discard that failed has left. It is success if that is
// nothing.
func (s *Store) Discard(ctx context.Context, m runtime.Machine) error {
	a, err := s.open(ctx, m)
	if err != nil {
		return err
	}
	tags, all, err := a.tags(ctx)
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if err := a.remove(ctx, tag); err != nil {
			return err
		}
	}
	if !all {
		return runtime.NewUnavailable(nil, "repository %s has more than %d tags, and not all could be removed at once", a.repository, maxTags)
	}
	return nil
}

// access is a machine's repository with what it takes to get at it, for one call.
type access struct {
	repository name.Repository
	// secret names the Secret with the credentials, and is empty if there are none.
	secret  string
	options []remote.Option
	puller  *remote.Puller
}

// open reads the machine's credentials. Requests are made once: whoever calls decides what is tried again.
func (s *Store) open(ctx context.Context, m runtime.Machine) (*access, error) {
	credentials, secret, err := s.credentials(ctx, m)
	if err != nil {
		return nil, err
	}
	a := &access{repository: s.repository(m), secret: secret, options: []remote.Option{
		remote.WithAuth(credentials), remote.WithTransport(s.transport), remote.WithContext(ctx),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}),
	}}
	if a.puller, err = remote.NewPuller(a.options...); err != nil {
		return nil, err
	}
	return a, nil
}

// digest gets the manifest, because only an answer to that says why there is none, and because what is made of its content needs no
// trust in a header.
func (a *access) digest(ctx context.Context, ref name.Reference) (string, error) {
	got, err := a.puller.Get(ctx, ref)
	switch {
	case a.absent(err):
		return "", nil
	case err != nil:
		return "", a.failed(err, "pull")
	case !got.MediaType.IsImage() && !got.MediaType.IsIndex():
		return "", a.failed(wrong("returned something that is not a manifest"), "pull")
	}
	digest, _, err := v1.SHA256(bytes.NewReader(got.Manifest))
	return digest.String(), err
}

// tags lists the repository, and says whether these are all.
func (a *access) tags(ctx context.Context) (tags []name.Tag, all bool, err error) {
	pages, err := a.puller.Lister(ctx, a.repository)
	if a.absent(err) {
		return nil, true, nil
	}
	for n := 0; err == nil && n < maxPages && pages.HasNext(); n++ {
		var page *remote.Tags
		if page, err = pages.Next(ctx); err != nil {
			break
		}
		for _, text := range page.Tags {
			if len(tags) == maxTags {
				return tags, false, nil
			}
			tag, err := name.NewTag(a.repository.Name()+":"+text, name.StrictValidation)
			if err != nil {
				return nil, false, a.failed(wrong("lists an invalid tag"), "pull")
			}
			tags = append(tags, tag)
		}
	}
	if err != nil {
		return nil, false, a.failed(err, "pull")
	}
	return tags, !pages.HasNext(), nil
}

// remove removes what the tag stands for, and the tag after it: without its tag nobody would find it again. To many registries the tag
// goes with it, and cannot be removed by itself.
func (a *access) remove(ctx context.Context, tag name.Tag) error {
	digest, err := a.digest(ctx, tag)
	if err != nil {
		return err
	}
	if digest != "" {
		if err := remote.Delete(a.repository.Digest(digest), a.options...); err != nil && !a.absent(err) {
			return a.failed(err, "delete")
		}
	}
	switch err := remote.Delete(tag, a.options...); status(err) {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return nil
	default:
		return a.failed(err, "delete")
	}
}
