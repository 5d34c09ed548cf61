// Package snapshot manages the snapshots of machines in an OCI registry, which agents on nodes push and pull. Each
// machine has a repository of its own, named after its namespace and UID, and each move a tag in it, so that
// snapshots of machines or moves cannot be confused. The registry is only contacted over TLS, with the credentials
// that the machine names.
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

// maxTags limits the tags that one Discard removes; a machine usually has one or two. maxPages limits the pages of
// their list.
const maxTags, maxPages = 1000, 100

// Store is the registry with the snapshots of all machines. It is safe for concurrent use.
type Store struct {
	prefix    name.Repository
	live      client.Reader
	transport http.RoundTripper
}

// New returns a Store whose repositories have the prefix repository, such as registry.example.com/machines. live
// reads Secrets without a cache. A nil transport means http.DefaultTransport. Requests and credentials go only to the
// registry's own host and to tokenHosts.
func New(repository string, live client.Reader, transport http.RoundTripper, tokenHosts ...string) (*Store, error) {
	prefix, err := name.NewRepository(repository, name.StrictValidation)
	if err == nil { // the longest repository name must be valid too
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

func (s *Store) repository(m runtime.Machine) name.Repository {
	return s.prefix.Repo(s.prefix.RepositoryStr(), m.Namespace, string(m.UID))
}

// Ref returns the reference to which an agent pushes the snapshot of the machine's Migration, which must be set.
func (s *Store) Ref(m runtime.Machine) string {
	return s.repository(m).Tag(string(m.Migration.ID)).Name()
}

// Digest returns the digest of the snapshot of the machine's Migration, which must be set. It is empty only if the
// registry certainly has none: any doubt is an error.
func (s *Store) Digest(ctx context.Context, m runtime.Machine) (string, error) {
	a, err := s.open(ctx, m)
	if err != nil {
		return "", err
	}
	return a.digest(ctx, a.repository.Tag(string(m.Migration.ID)))
}

// Left returns one of the snapshots in the machine's repository, or "" if it has none.
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

// Discard removes everything in the machine's repository, including leftovers of a failed Discard. An empty
// repository is not an error.
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

// access is a machine's repository with its credentials, for one call.
type access struct {
	repository name.Repository
	// secret is the key of the Secret with the credentials, or empty.
	secret  string
	options []remote.Option
	puller  *remote.Puller
}

// open reads the machine's credentials. Requests are not retried: the caller decides.
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

// digest fetches the manifest: only its response says why there is none, and a digest computed from the content needs
// no trust in a header.
func (a *access) digest(ctx context.Context, ref name.Reference) (string, error) {
	got, err := a.puller.Get(ctx, ref)
	switch {
	case a.absent(err):
		return "", nil
	case err != nil:
		return "", a.translate(err, "pull")
	case !got.MediaType.IsImage() && !got.MediaType.IsIndex():
		return "", a.translate(protocolError("returned something that is not a manifest"), "pull")
	}
	digest, _, err := v1.SHA256(bytes.NewReader(got.Manifest))
	return digest.String(), err
}

// tags lists the repository, and reports whether the list is complete.
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
				return nil, false, a.translate(protocolError("lists an invalid tag"), "pull")
			}
			tags = append(tags, tag)
		}
	}
	if err != nil {
		return nil, false, a.translate(err, "pull")
	}
	return tags, !pages.HasNext(), nil
}

// remove removes the manifest first and its tag second, because without the tag it could not be found again. Many
// registries remove the tag with the manifest and reject its removal.
func (a *access) remove(ctx context.Context, tag name.Tag) error {
	digest, err := a.digest(ctx, tag)
	if err != nil {
		return err
	}
	if digest != "" {
		if err := remote.Delete(a.repository.Digest(digest), a.options...); err != nil && !a.absent(err) {
			return a.translate(err, "delete")
		}
	}
	switch err := remote.Delete(tag, a.options...); status(err) {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return nil
	default:
		return a.translate(err, "delete")
	}
}
