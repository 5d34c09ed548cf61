package main

import (
	"bytes"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What policies are asked about, in CEL. Requests are left out by what they change and never by who makes them: a reconciler's status
// update, a finalizer's removal and whatever concerns a terminating object must pass while nothing serves the webhook, or one outage
// would wedge every machine. But to give up on an instance of a terminating VirtualMachine takes a right, and nothing waits for it.
// The one exception is what Sallyport ships itself, which at first nothing could serve.
var (
	isNotTerminating = condition("is-not-terminating", notTerminating)
	// As on other kinds, see registration.
	changesMore = condition("changes-more-than-status-or-finalizers",
		"request.operation != 'UPDATE'",
		"|| object.?spec != oldObject.?spec",
		"|| ['labels', 'annotations', 'ownerReferences'].exists(k, object.metadata[?k] != oldObject.metadata[?k])")
	// The way out when no replica answers, or none lets a repair pass: who may override policies-self says why, anew for each write.
	isNotUnchecked = condition("is-not-unchecked-by-who-may",
		"request.operation == 'DELETE'",
		"|| object.metadata.?annotations[?'sallyport.dev/unchecked'].orValue('') == ''",
		"|| request.operation == 'UPDATE'",
		"&& object.metadata.?annotations[?'sallyport.dev/unchecked'] == oldObject.metadata.?annotations[?'sallyport.dev/unchecked']",
		"|| !authorizer.group('sallyport.dev').resource('regopolicies').name('policies-self').check('override').allowed()")
	isNotShipped = condition("is-not-shipped-by-sallyport", "request.userInfo.username != 'system:serviceaccount:sallyport-system:sallyport'")
)

// releases reports whether a request removes a finalizer of ours, other than Sallyport itself does when nothing is left. Who may override
// machines-abandon is not asked about, so that no outage keeps an administrator from cleaning up.
const releases = "request.operation == 'UPDATE'" +
	" && oldObject.metadata.?finalizers.orValue([]).exists(f, f in ['" + v1alpha1.VirtualMachineFinalizer + "', '" + v1alpha1.VirtualDiskFinalizer +
	"', '" + v1alpha1.VMDiskImageFinalizer + "', '" + v1alpha1.VSphereTemplateFinalizer + "'] && !(f in object.metadata.?finalizers.orValue([])))" +
	" && request.userInfo.username != 'system:serviceaccount:sallyport-system:sallyport'" +
	" && !authorizer.group('sallyport.dev').resource('regopolicies').name('machines-abandon').check('override').allowed()"

// growsLarge reports whether an update adds many finalizers. The webhook denies objects that are too large.
const growsLarge = "request.operation == 'UPDATE' && size(object.metadata.?finalizers.orValue([])) > 16" +
	" && size(object.metadata.?finalizers.orValue([])) > size(oldObject.metadata.?finalizers.orValue([]))"

// orReleases is a condition that lets the removal of a finalizer be asked about, too.
func orReleases(c admissionregistrationv1.MatchCondition) admissionregistrationv1.MatchCondition {
	return condition(c.Name, c.Expression, "|| "+releases)
}

// notTerminating exempts a terminating object only as long as its spec stays: what it says counts for others, as in a quota.
const notTerminating = "request.operation == 'CREATE' || !has(oldObject.metadata.deletionTimestamp)" +
	" || request.operation == 'UPDATE' && object.?spec != oldObject.?spec"

func condition(name string, parts ...string) admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: name, Expression: strings.Join(parts, " ")}
}

// isNotOver lets what gives up on an instance be asked about, too. At a deletion there is no object that could.
func isNotOver(rules []admissionregistrationv1.RuleWithOperations) admissionregistrationv1.MatchCondition {
	updates := "||"
	if slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.Operations, admissionregistrationv1.Delete)
	}) {
		updates = "|| request.operation == 'UPDATE' &&"
	}
	return condition("is-not-terminating", notTerminating, updates,
		"['"+v1alpha1.AnnotationAbandonInstance+"', '"+v1alpha1.AnnotationSourceFenced+"'].exists(key,",
		"object.metadata.?annotations[?key].hasValue()",
		"&& object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key])")
}

const policyKind = "RegoPolicy"

// webhooks are the configurations for Sallyport's own kinds, as the documented release has them; templates/webhooks.yaml puts in what
// another one has instead. There is no caBundle: it is the manager's to write, and Helm leaves alone what is not said here.
func webhooks() ([]byte, error) {
	meta := metav1.ObjectMeta{Name: "sallyport"}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: typeMeta("MutatingWebhookConfiguration"), ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.sallyport.dev", AdmissionReviewVersions: []string{"v1"}, ClientConfig: service("/mutate"),
			FailurePolicy: new(admissionregistrationv1.Fail), ReinvocationPolicy: new(admissionregistrationv1.NeverReinvocationPolicy),
			SideEffects: new(admissionregistrationv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: new(int32(5)),
			Rules:           rules(func(k *v1alpha1.Kind) []string { return k.Mutating }),
			MatchConditions: []admissionregistrationv1.MatchCondition{isNotTerminating, changesMore},
		}},
	}
	of := func(policies bool) []admissionregistrationv1.RuleWithOperations {
		return rules(func(k *v1alpha1.Kind) []string {
			if (k.Name == policyKind) != policies {
				return nil
			}
			return k.Validating
		})
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: typeMeta("ValidatingWebhookConfiguration"), ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			validates("validate.sallyport.dev", of(false), orReleases(isNotOver(of(false))), orReleases(condition(changesMore.Name, changesMore.Expression, "||", growsLarge))),
			validates("validate-policies.sallyport.dev", of(true), isNotTerminating, changesMore, isNotUnchecked, isNotShipped),
		},
	}
	first, err := yaml.Marshal(mutating)
	if err != nil {
		return nil, err
	}
	second, err := yaml.Marshal(validating)
	return bytes.Join([][]byte{first, second}, []byte("---\n")), err
}

func validates(name string, rules []admissionregistrationv1.RuleWithOperations, conditions ...admissionregistrationv1.MatchCondition) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: name, AdmissionReviewVersions: []string{"v1"}, ClientConfig: service("/validate"), FailurePolicy: new(admissionregistrationv1.Fail),
		SideEffects: new(admissionregistrationv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: new(int32(5)), Rules: rules, MatchConditions: conditions,
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

func service(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: "sallyport-system", Name: "sallyport-webhook", Port: new(int32(443)), Path: &path,
	}}
}

// rules are for the kinds about which policies are asked at all, a rule for those that have operations and scope in common.
func rules(operations func(*v1alpha1.Kind) []string) (all []admissionregistrationv1.RuleWithOperations) {
	for i := range v1alpha1.Kinds {
		kind := &v1alpha1.Kinds[i]
		scope := admissionregistrationv1.NamespacedScope
		var at []admissionregistrationv1.OperationType
		for _, operation := range operations(kind) {
			at = append(at, admissionregistrationv1.OperationType(operation))
		}
		if kind.Cluster {
			scope = admissionregistrationv1.ClusterScope
		}
		if len(at) == 0 {
			continue
		}
		same := slices.IndexFunc(all, func(r admissionregistrationv1.RuleWithOperations) bool {
			return slices.Equal(r.Operations, at) && *r.Scope == scope
		})
		if same < 0 {
			same = len(all)
			all = append(all, admissionregistrationv1.RuleWithOperations{Operations: at, Rule: admissionregistrationv1.Rule{
				APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{v1alpha1.GroupVersion.Version}, Scope: &scope,
			}})
		}
		all[same].Resources = append(all[same].Resources, kind.Resource())
		if kind.Scale {
			all[same].Resources = append(all[same].Resources, kind.Resource()+"/scale")
		}
	}
	return all
}

// roles are the kinds as the roles of people name them.
func roles() ([]byte, error) {
	type role struct {
		Resource string `json:"resource"`
		People   bool   `json:"people"`
		Scale    bool   `json:"scale,omitempty"`
	}
	var all []role
	for i := range v1alpha1.Kinds {
		kind := &v1alpha1.Kinds[i]
		all = append(all, role{kind.Resource(), kind.People, kind.Scale})
	}
	return yaml.Marshal(all)
}
