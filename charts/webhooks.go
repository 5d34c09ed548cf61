package charts

import (
	"bytes"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// Webhooks are the configurations for Sallyport's own kinds, as the chart makes them for the documented release, sallyport in
// namespace sallyport-system: without a caBundle. Each call decodes them anew, so callers may change what they get.
func Webhooks() (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	const file = "sallyport/files/webhooks.yaml"
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	text, err := Files.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", file, err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	for i, into := range []any{mutating, validating} {
		if len(documents) != 2 {
			return nil, nil, fmt.Errorf("%s has %d documents, not the mutating and the validating one", file, len(documents))
		}
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			return nil, nil, fmt.Errorf("decoding %s: %w", file, err)
		}
	}
	return mutating, validating, nil
}
