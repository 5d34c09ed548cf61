package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

type objectReport struct {
	Object *metav1.PartialObjectMetadata `json:"object"`
	// Resource is the resource name of its kind, such as deployments.apps.
	Resource string `json:"resource"`
	// Replicas is the desired number; absent if the kind cannot be scaled.
	Replicas *int64 `json:"replicas,omitempty"`
	// Finalizers are what its deletion waits for: those of a Namespace's content, too.
	Finalizers []string `json:"finalizers,omitempty"`
	// Conditions are those that have changed since the deletion was requested.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Owners     []owner            `json:"owners,omitempty"`
	// Override is the override in the object's annotation.
	Override *v1alpha1.Override `json:"override,omitempty"`
	// Pool is what a VirtualMachinePool waits for.
	Pool *poolReport `json:"pool,omitempty"`
	// Template is what a VSphereTemplate waits for.
	Template *templateReport `json:"template,omitempty"`
	// Image is what a VMDiskImage waits for, and who uses it.
	Image *imageReport `json:"image,omitempty"`
	// Server is the state of a VSphereServer.
	Server *serverReport `json:"server,omitempty"`
	Events []event       `json:"events,omitempty"`
	// Requests are the possible requests and whether they would be admitted now.
	Requests []cli.Answer `json:"requests"`
	// Unknown lists what could not be read.
	Unknown []string `json:"unknown,omitempty"`
}

// owner is one of an object's ownerReferences.
type owner struct {
	metav1.OwnerReference
	// Resource is what its kind is called in requests.
	Resource string `json:"resource,omitempty"`
	// State is the state of the owner, such as "does not exist". It is empty if the owner exists.
	State string `json:"state,omitempty"`
	// Owner is its own controller.
	Owner *owner `json:"owner,omitempty"`
}

// event is an event that Sallyport recorded.
type event struct {
	Reason string    `json:"reason"`
	Note   string    `json:"note"`
	Count  int32     `json:"count"`
	At     time.Time `json:"at"`
}

// looking gathers the report about one object.
type looking struct {
	*cli.Cluster
	object cli.Found
	r      *objectReport
}

func gatherObject(ctx context.Context, p *cli.Plugin, c *cli.Cluster, args []string) (cli.Report, error) {
	objects, err := p.Find(c.Namespace, cli.Selection{}, args...)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s is not the name of a single object", strings.Join(args, " "))
	}
	r := &objectReport{Object: &metav1.PartialObjectMetadata{}, Resource: objects[0].Mapping.Resource.GroupResource().String()}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, r.Object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", strings.Join(args, " "), err)
	}
	r.Object.ManagedFields = nil
	delete(r.Object.Annotations, corev1.LastAppliedConfigAnnotation)
	l := &looking{Cluster: c, object: objects[0], r: r}
	l.deletion()
	r.Override, _ = v1alpha1.ParseOverride(r.Object.Annotations[v1alpha1.AnnotationOverride]) // none that could not count
	for _, reference := range r.Object.OwnerReferences {
		r.Owners = append(r.Owners, l.owner(ctx, reference, r.Object.Namespace, 0))
	}
	if err := l.ofItsKind(ctx, p.Now()); err != nil {
		return nil, err
	}
	if err := l.events(ctx); err != nil {
		r.unknown("events", err)
	}
	requests := []cli.Answer{{Type: v1alpha1.OperationDelete}}
	if err := l.scale(ctx); err != nil {
		r.unknown("replicas", err)
	}
	if n := r.Replicas; n != nil && *n > 0 {
		requests = append(requests, cli.Answer{Type: cli.Scaling, Replicas: new(*n - 1)})
		if *n > 1 {
			requests = append(requests, cli.Answer{Type: cli.Scaling, Replicas: new(int64(0))})
		}
	}
	r.Requests = c.Ask(ctx, l, requests)
	return r, nil
}

// ofItsKind adds the parts of the report that are specific to the kind.
func (l *looking) ofItsKind(ctx context.Context, now time.Time) error {
	switch l.r.Object.GroupVersionKind().GroupKind() {
	case v1alpha1.GroupVersion.WithKind(cli.PoolKind).GroupKind():
		return l.pool(ctx, now)
	case v1alpha1.GroupVersion.WithKind(cli.TemplateKind).GroupKind():
		return l.template(ctx)
	case v1alpha1.GroupVersion.WithKind(cli.ImageKind).GroupKind():
		return l.image(ctx)
	case v1alpha1.GroupVersion.WithKind(cli.ServerKind).GroupKind():
		l.server()
	}
	return nil
}

func (r *objectReport) unknown(what string, err error) {
	r.Unknown = append(r.Unknown, fmt.Sprintf("%s: %v", what, err))
}

func (l *looking) Try(ctx context.Context, a *cli.Answer) error {
	object := l.object.DeepCopy()
	if a.Type == v1alpha1.OperationDelete {
		return l.Delete(ctx, object, client.DryRunAll, client.Preconditions{UID: new(object.GetUID())},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, *a.Replicas))
	return l.SubResource("scale").Patch(ctx, object, patch, client.DryRunAll)
}

func (l *looking) Right(a *cli.Answer) *authorizationv1.ResourceAttributes {
	of := l.object.Mapping.Resource
	right := &authorizationv1.ResourceAttributes{
		Verb: "delete", Group: of.Group, Version: of.Version, Resource: of.Resource, Namespace: l.object.GetNamespace(), Name: l.object.GetName(),
	}
	if a.Type == cli.Scaling {
		right.Verb, right.Subresource = "patch", "scale"
	}
	return right
}

// scale adds the desired number of replicas, if the kind can be scaled.
func (l *looking) scale(ctx context.Context) error {
	resource := l.object.Mapping.Resource
	d, err := discovery.NewDiscoveryClientForConfig(l.Config)
	if err != nil {
		return err
	}
	served, err := d.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return err
	}
	scales := func(r metav1.APIResource) bool { return r.Name == resource.Resource+"/scale" }
	if !slices.ContainsFunc(served.APIResources, scales) {
		return nil
	}
	scale := &unstructured.Unstructured{}
	if err := l.SubResource("scale").Get(ctx, l.object.Unstructured, scale); err != nil {
		return err
	}
	n, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas") // it is left out if it is 0
	l.r.Replicas = &n
	return err
}

// deletion adds what blocks the deletion of an object, besides its finalizers: conditions that changed since are from the
// controllers that work on it.
func (l *looking) deletion() {
	o := &l.r.Object.ObjectMeta
	if o.DeletionTimestamp == nil {
		return
	}
	l.r.Finalizers = slices.Clone(o.Finalizers)
	if l.object.Mapping.Resource.GroupResource() == corev1.Resource("namespaces") {
		content, _, _ := unstructured.NestedStringSlice(l.object.Object, "spec", "finalizers")
		l.r.Finalizers = append(l.r.Finalizers, content...)
	}
	conditions, _, _ := unstructured.NestedSlice(l.object.Object, "status", "conditions")
	for _, fields := range conditions {
		c := metav1.Condition{}
		given, ok := fields.(map[string]any)
		if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(given, &c) != nil {
			continue
		}
		// A Namespace has a condition for each possible problem, most of them False.
		fine := strings.HasPrefix(c.Type, "Namespace") && c.Status == metav1.ConditionFalse
		if !fine && !c.LastTransitionTime.Time.Before(cli.DeletionRequestedAt(o)) {
			l.r.Conditions = append(l.r.Conditions, c)
		}
	}
}

// States of owners that no longer act.
const ownerGone, ownerGoing = "does not exist", "being deleted"

// generations is the maximum depth of the owner chain.
const generations = 8

// owner reads the state of an owner and of the controllers above it.
func (l *looking) owner(ctx context.Context, reference metav1.OwnerReference, namespace string, depth int) owner {
	o := owner{OwnerReference: reference}
	is := &metav1.PartialObjectMetadata{}
	is.APIVersion, is.Kind = reference.APIVersion, reference.Kind
	mapping, err := l.RESTMapper().RESTMapping(is.GroupVersionKind().GroupKind(), is.GroupVersionKind().Version)
	if err == nil {
		o.Resource = mapping.Resource.GroupResource().String()
		key := client.ObjectKey{Name: reference.Name}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			key.Namespace = namespace
		}
		err = l.Get(ctx, key, is)
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && is.UID != reference.UID:
		o.State = ownerGone
	case meta.IsNoMatchError(err):
		o.State = "kind does not exist in this cluster"
	case err != nil:
		o.State = fmt.Sprintf("cannot be read: %v", err)
	case is.DeletionTimestamp != nil:
		o.State = ownerGoing
	}
	if above := metav1.GetControllerOf(is); err == nil && above != nil && depth < generations {
		o.Owner = new(l.owner(ctx, *above, is.Namespace, depth+1))
	}
	return o
}

const (
	// eventSource is the reporting controller of Sallyport's events.
	eventSource = "sallyport"
	// shownEvents is the maximum number of events.
	shownEvents = 5
)

// events adds the latest events of Sallyport, the newest first.
func (l *looking) events(ctx context.Context) error {
	list := &corev1.EventList{}
	about := client.MatchingFields{"involvedObject.uid": string(l.object.GetUID()), "reportingComponent": eventSource}
	// Events about cluster-scoped objects are in this namespace.
	home := client.InNamespace(cmp.Or(l.object.GetNamespace(), metav1.NamespaceDefault))
	if err := l.List(ctx, list, home, about); err != nil {
		return err
	}
	for i := range list.Items {
		e := &list.Items[i]
		note := event{Reason: e.Reason, Note: e.Message, Count: max(e.Count, 1), At: e.LastTimestamp.Time}
		if note.At.IsZero() {
			note.At = e.EventTime.Time
		}
		if s := e.Series; s != nil {
			note.Count, note.At = s.Count, s.LastObservedTime.Time
		}
		l.r.Events = append(l.r.Events, note)
	}
	slices.SortStableFunc(l.r.Events, func(a, b event) int { return b.At.Compare(a.At) })
	l.r.Events = l.r.Events[:min(len(l.r.Events), shownEvents)]
	return nil
}

// decode decodes the object into its type. If that fails, the report has the error, and only what it has for all kinds.
func (l *looking) decode(into runtime.Object) bool {
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.object.Object, into)
	if err != nil {
		l.r.unknown("status", err)
	}
	return err == nil
}

func (r *objectReport) Text(p *cli.Page) {
	o := r.Object
	where := ""
	if o.Namespace != "" {
		where = " in namespace " + o.Namespace
	}
	p.Line("%s %s%s\n", o.Kind, o.Name, where)
	p.Row("Age:", p.Ago(o.CreationTimestamp.Time))
	if r.Replicas != nil {
		p.Row("Replicas:", fmt.Sprint(*r.Replicas))
	}
	if r.Template != nil {
		r.Template.Text(p)
	}
	if r.Image != nil {
		r.Image.Text(p)
	}
	if r.Server != nil {
		r.Server.Text(p)
	}
	if r.Pool != nil {
		r.Pool.Text(p)
	}
	if o.GroupVersionKind().GroupKind() == v1alpha1.GroupVersion.WithKind(cli.PolicyKind).GroupKind() {
		p.Row("Policy status:", cli.PoliciesCommand(o.Name))
	}
	var owners []string
	for i := range r.Owners {
		owners = append(owners, r.Owners[i].text(o.Namespace)...)
	}
	p.Row("Owner:", strings.Join(owners, "\n"))
	p.Row("Guards:", r.guards())
	p.Row("Override:", r.override(p))
	var conditions []string
	for i := range r.Conditions {
		if r.Image != nil {
			break // its own rows have them
		}
		conditions = append(conditions, r.Conditions[i].Type+" "+p.Condition(&r.Conditions[i]))
	}
	deleted := o.ObjectMeta.DeepCopy()
	deleted.Finalizers = r.Finalizers
	p.Deletion(deleted, conditions...)
	var events []string
	for _, e := range r.Events {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(", %d times", e.Count)
		}
		events = append(events, fmt.Sprintf("%s %s ago%s: %s", e.Reason, p.Ago(e.At), times, cli.OneLine(e.Note)))
	}
	p.Row("Events:", strings.Join(events, "\n"))
	p.Row("Unknown:", strings.Join(r.Unknown, "\n"))
	printAnswers(p, r.Requests, wholeText)
	printDiagnosis(p, strings.ToLower(o.Kind), r.Requests)
}

func (r *objectReport) guards() string {
	var guards []string
	switch value, is := r.Object.Labels[v1alpha1.LabelDeletionProtection]; {
	case is && value == v1alpha1.DeletionProtectionEnabled:
		guards = append(guards, "label "+v1alpha1.LabelDeletionProtection+"="+value)
	case is:
		guards = append(guards, fmt.Sprintf("label %s=%s (no effect: the value must be %s)",
			v1alpha1.LabelDeletionProtection, value, v1alpha1.DeletionProtectionEnabled))
	}
	for _, key := range []string{v1alpha1.AnnotationScaleDown, v1alpha1.AnnotationMinReplicas, v1alpha1.AnnotationMaxScaleDown} {
		if value, is := r.Object.Annotations[key]; is {
			guards = append(guards, "annotation "+key+"="+value)
		}
	}
	return strings.Join(guards, "\n")
}

// override describes the override annotation if it can still be valid. The API server decides whose requests it applies to.
func (r *objectReport) override(p *cli.Page) string {
	o := r.Override
	if o == nil || o.UID != r.Object.UID || !o.Until.After(p.Now) {
		return ""
	}
	return fmt.Sprintf("policy %s, by %s, for another %s: %s", o.Policy, o.By, duration.HumanDuration(o.Until.Sub(p.Now)), o.Reason)
}

// text names an owner and the owners above it, and the controller to change instead of the object.
func (o *owner) text(namespace string) []string {
	text, top := o.called(), o
	for above := o.Owner; above != nil; above = above.Owner {
		text, top = text+" of "+above.called(), above
	}
	switch {
	case o.Controller != nil && *o.Controller && o.stays() && top.stays():
		look := commands.Line(append([]string{"kubectl", "sallyport", "why"}, commands.Object(top.Resource, namespace, top.Name)...)...)
		return []string{text, "its controller can recreate or rescale the object; see: " + look}
	case o.State == "":
		text += " (the object is deleted with its owner)"
	}
	return []string{text}
}

// stays reports whether an owner exists and is not being deleted, as far as known.
func (o *owner) stays() bool {
	return o.Resource != "" && o.State != ownerGone && o.State != ownerGoing
}

func (o *owner) called() string {
	text := o.Kind + " " + o.Name
	if o.State != "" {
		text += " (" + o.State + ")"
	}
	return text
}

// waitingFor prints what an object waits for: the reconciliation of its latest change, if that is outstanding, and the rest.
func waitingFor(p *cli.Page, reconciled bool, rest []string) {
	if !reconciled {
		rest = append([]string{"reconciliation of the latest change"}, rest...)
	}
	p.Row("Waiting for:", cmp.Or(strings.Join(rest, "\n"), "nothing"))
}
