package shipping

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// FieldOwner is the field manager of shipped fields.
	FieldOwner = "sallyport"
	// Label marks every shipped policy with the value "true".
	Label = v1alpha1.GroupName + "/shipped"
	// ReleaseAnnotation contains the version of the release, on the ConfigMap and on every shipped policy.
	ReleaseAnnotation = v1alpha1.GroupName + "/release"
	// ShipmentAnnotation on the ConfigMap contains a hash of its policies. Replicas of the release are started with
	// the same hash.
	ShipmentAnnotation = v1alpha1.GroupName + "/shipment"
	// ReadsAnnotation on the ConfigMap lists the resources that policies read, and which policies.
	ReadsAnnotation = v1alpha1.GroupName + "/policy-reads"
	// ResetAsked is the value of a policy's ReleaseAnnotation that requests a reset, or marks one in progress.
	ResetAsked = "reset"

	recordPrefix = "shipped." + v1alpha1.GroupName + "/"
	fileEnding   = ".yaml"
	kind         = "RegoPolicy"
)

// Read returns the policies of a ConfigMap, libraries first, each kind by name. They have the label and annotation of
// shipped policies, their Rego files and all defaults. The error joins all problems and names the keys; the readable
// policies are returned with it.
func Read(cm *corev1.ConfigMap, sources Sources) ([]v1alpha1.RegoPolicy, error) {
	var errs []error
	var policies []v1alpha1.RegoPolicy
	for _, name := range Names(cm) {
		policy, err := ReadPolicy(cm, name, sources)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		policies = append(policies, *policy)
	}
	slices.SortFunc(policies, func(a, b v1alpha1.RegoPolicy) int {
		return cmp.Or(librariesFirst(&a, &b), strings.Compare(a.Name, b.Name))
	})
	return policies, errors.Join(errs...)
}

// Names returns the sorted names of all policies of a ConfigMap, including unreadable ones.
func Names(cm *corev1.ConfigMap) []string {
	var names []string
	for key := range cm.Data {
		names = append(names, strings.TrimSuffix(key, fileEnding))
	}
	slices.Sort(names)
	return names
}

// ReadPolicy returns one of the policies that Read returns.
func ReadPolicy(cm *corev1.ConfigMap, name string, sources Sources) (*v1alpha1.RegoPolicy, error) {
	in := fmt.Sprintf("ConfigMap %s/%s", cm.Namespace, cm.Name)
	release := cm.Annotations[ReleaseAnnotation]
	if release == "" || release == ResetAsked {
		return nil, fmt.Errorf("%s: annotation %s must be the version of the release", in, ReleaseAnnotation)
	}
	key := name + fileEnding
	text, ok := cm.Data[key]
	if !ok && cm.Data[name] != "" {
		return nil, fmt.Errorf("%s, key %s: a key must end in %s", in, name, fileEnding)
	} else if !ok {
		return nil, fmt.Errorf("%s ships no policy %s", in, name)
	}
	policy, err := read(key, text, release)
	if err == nil {
		err = sources.resolve(policy)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, key %s: %w", in, key, err)
	}
	return policy, nil
}

func read(key, text, release string) (*v1alpha1.RegoPolicy, error) {
	if strings.Contains(text, "\n---\n") {
		return nil, errors.New("must be a single YAML document, without a line ---")
	}
	policy := &v1alpha1.RegoPolicy{}
	if err := yaml.UnmarshalStrict([]byte(text), policy); err != nil {
		return nil, err
	}
	wanted := v1alpha1.GroupVersion.WithKind(kind)
	switch {
	case policy.GroupVersionKind() != wanted:
		return nil, fmt.Errorf("apiVersion and kind must be %s and %s", wanted.GroupVersion(), wanted.Kind)
	case policy.Name == "":
		return nil, errors.New("metadata.name is missing")
	case policy.Name+fileEnding != key:
		return nil, fmt.Errorf("metadata.name is %s, so the key must be %s", policy.Name, policy.Name+fileEnding)
	}
	policy.ObjectMeta = metav1.ObjectMeta{Name: policy.Name, Labels: policy.Labels, Annotations: policy.Annotations}
	if policy.Labels == nil {
		policy.Labels = map[string]string{}
	}
	if policy.Annotations == nil {
		policy.Annotations = map[string]string{}
	}
	policy.Labels[Label], policy.Annotations[ReleaseAnnotation] = "true", release
	policy.Status = v1alpha1.RegoPolicyStatus{}
	fill(&policy.Spec)
	_, err := fieldsOfPolicy(policy) // for example duplicate keys in a list
	return policy, err
}

// fill sets the defaults of the API, so that an edit of such a field can be recognized.
func fill(spec *v1alpha1.RegoPolicySpec) {
	spec.Mode = cmp.Or(spec.Mode, v1alpha1.ModeEnforce)
	spec.Override = cmp.Or(spec.Override, v1alpha1.OverrideUsers)
	spec.OnError = cmp.Or(spec.OnError, v1alpha1.OnErrorDeny)
	spec.FailurePolicy = cmp.Or(spec.FailurePolicy, v1alpha1.FailureFail)
	spec.TimeoutMilliseconds = cmp.Or(spec.TimeoutMilliseconds, v1alpha1.DefaultTimeoutMilliseconds)
	spec.BackgroundAudit = cmp.Or(spec.BackgroundAudit, v1alpha1.AuditDisabled)
	for i := range spec.Reads {
		spec.Reads[i].Freshness = cmp.Or(spec.Reads[i].Freshness, v1alpha1.ReadCached)
	}
}

func librariesFirst(a, b *v1alpha1.RegoPolicy) int {
	switch {
	case a.Spec.Library == b.Spec.Library:
		return 0
	case a.Spec.Library:
		return -1
	}
	return 1
}
