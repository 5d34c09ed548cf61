package snapshot

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// credentials reads the registry credentials of the machine's Secret, and returns the Secret's key. The creator of
// the machine was authorized to read it. Errors name the field and reveal nothing of the content.
func (s *Store) credentials(ctx context.Context, m runtime.Machine) (_ authn.Authenticator, from string, _ error) {
	if m.Spec.Runtime.Pod == nil || m.Spec.Runtime.Pod.SnapshotSecretRef == nil {
		return authn.Anonymous, "", nil
	}
	key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.Runtime.Pod.SnapshotSecretRef.Name}
	wrong := func(cause error, what string) error {
		return runtime.NewInvalidSpec(cause, "spec.runtime.pod.snapshotSecretRef: Secret %s %s", key.Name, what)
	}
	var secret corev1.Secret
	err := s.live.Get(ctx, key, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", wrong(err, "does not exist")
	case apierrors.IsForbidden(err):
		return nil, "", wrong(err, "cannot be read: an administrator can add namespace "+key.Namespace+" to rbac.snapshotSecrets in the values of the chart")
	case err != nil:
		return nil, "", runtime.NewUnavailable(err, "Secret %s could not be read", key.Name)
	case secret.Type != corev1.SecretTypeDockerConfigJson:
		return nil, "", wrong(nil, "must have type "+string(corev1.SecretTypeDockerConfigJson))
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config) != nil { // the error could reveal the content
		return nil, "", wrong(nil, "has no Docker configuration in "+corev1.DockerConfigJsonKey)
	}
	registry := s.prefix.RegistryStr()
	entry := entryFor(registry, config.Auths)
	if entry == (authn.AuthConfig{}) {
		return nil, "", wrong(nil, "has no credentials for registry "+registry)
	}
	return authn.FromConfig(entry), key.String(), nil
}

// entryFor returns the entry of that registry only, as Docker looks it up: by its exact name, or by an address of its
// host.
func entryFor(registry string, auths map[string]authn.AuthConfig) authn.AuthConfig {
	if entry, is := auths[registry]; is {
		return entry
	}
	for _, key := range slices.Sorted(maps.Keys(auths)) {
		host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://"), "/")
		if of, err := name.NewRegistry(host, name.StrictValidation); err == nil && of.RegistryStr() == registry {
			return auths[key]
		}
	}
	return authn.AuthConfig{}
}
