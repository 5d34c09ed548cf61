package shipping

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Sources are the embedded Rego files by reference. A ConfigMap refers to the files of the release instead of
// containing a second copy: Helm stores each release in a Secret of at most 1 MiB.
type Sources map[string]string

// NewSources returns the Rego files of policies.
func NewSources(policies []v1alpha1.RegoPolicy) Sources {
	s := Sources{}
	for i := range policies {
		for _, source := range sourcesOf(&policies[i]) {
			s[reference(*source)] = *source
		}
	}
	return s
}

// Refer replaces the Rego of a policy by references.
func Refer(policy *v1alpha1.RegoPolicy) {
	for _, source := range sourcesOf(policy) {
		*source = reference(*source)
	}
}

const digestPrefix = "sha256:"

// reference returns the reference to a Rego file. It is not valid Rego, so it cannot be mistaken for a file.
func reference(source string) string {
	digest := sha256.Sum256([]byte(source))
	return digestPrefix + hex.EncodeToString(digest[:])
}

// resolve replaces the references in a policy by the files. The error names references to files that are not
// embedded.
func (s Sources) resolve(policy *v1alpha1.RegoPolicy) error {
	var errs []error
	for field, source := range sourcesOf(policy) {
		if !strings.HasPrefix(*source, digestPrefix) {
			continue
		}
		text, ok := s[*source]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: this program does not contain the file %s; use a program and a chart of the same build", field, *source))
			continue
		}
		*source = text
	}
	return errors.Join(errs...)
}

// sourcesOf returns the Rego files of a policy by field.
func sourcesOf(policy *v1alpha1.RegoPolicy) map[string]*string {
	sources := map[string]*string{}
	for i := range policy.Spec.Modules {
		sources["spec.modules."+policy.Spec.Modules[i].Name] = &policy.Spec.Modules[i].Source
	}
	for i := range policy.Spec.Tests {
		sources["spec.tests."+policy.Spec.Tests[i].Name] = &policy.Spec.Tests[i].Source
	}
	return sources
}
