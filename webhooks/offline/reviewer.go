package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Reviewer answers requests as a cluster with the objects of the world would. Admitted objects are added to the world.
type Reviewer struct {
	world      *World
	hooks      *Hooks
	set        *catalog.Set
	facts      decision.FactSource
	explaining *Explaining
	now        func() time.Time
}

// Options are the arguments of New.
type Options struct {
	// Policies are the active policies.
	Policies *catalog.Set
	// State has all existing objects.
	State []Document
	// Namespace is the namespace of objects that do not set one.
	Namespace string
	// Now returns the time of a request.
	Now func() time.Time
	// Hooks are the webhooks of a cluster.
	Hooks *Hooks
	// Facts answers queries; nil means from the state.
	Facts decision.FactSource
	// Own are Sallyport's kinds, and Kinds those of a cluster, besides built-in kinds and those that the state defines.
	Own   *Kinds
	Kinds []ServedKind
	// Stored are the RegoPolicies that Policies were compiled from, and TestRunner returns the runner for tests of another one
	// among them, if facts are from the state. If nil, RegoPolicies cannot be tested.
	Stored     []v1alpha1.RegoPolicy
	TestRunner TestRunner
	// Unserved returns what a policy names that no cluster serves; nil if it is known from a cluster.
	Unserved func(*v1alpha1.RegoPolicy) []string
	// Explain explains every policy; nil means none.
	Explain *Explaining
}

// New returns a reviewer. The error joins all errors of the state.
func New(o Options) (*Reviewer, error) {
	all := &Kinds{maps.Clone(o.Own.known)}
	for _, k := range o.Kinds {
		all.serve(k)
	}
	world, err := newWorld(all, o.State, o.Namespace, o.Now)
	if err != nil {
		return nil, err
	}
	for i := range o.Stored {
		if o.Unserved == nil {
			break
		}
		for _, why := range o.Unserved(&o.Stored[i]) {
			world.warnings = append(world.warnings, fmt.Sprintf("policy %s is not evaluated for everything in its spec.match: %s", o.Stored[i].Name, why))
		}
	}
	if o.Facts == nil {
		store := facts.NewStore(nil, &worldClient{world: world})
		if o.TestRunner != nil {
			store.RunTestsWith(o.TestRunner(func(context.Context) ([]v1alpha1.RegoPolicy, error) { return world.policies(o.Stored) }))
		}
		o.Facts = store
	}
	return &Reviewer{world: world, hooks: o.Hooks, set: o.Policies, facts: o.Facts, explaining: o.Explain, now: o.Now}, nil
}

// Review answers requests in order. An error means that a cluster would not receive one of them.
func (r *Reviewer) Review(ctx context.Context, requests ...*Request) (*Report, error) {
	report := &Report{Warnings: r.world.warnings}
	for _, request := range requests {
		result, err := r.review(ctx, request)
		if err != nil {
			return nil, err
		}
		report.add(result)
	}
	return report, nil
}

func (r *Reviewer) review(ctx context.Context, request *Request) (*Result, error) {
	p, err := r.parse(request)
	if err != nil {
		return nil, err
	}
	switch {
	case !p.connection.Empty(): // mutating webhooks do not change it
		err = r.validate(ctx, p)
	case p.scaled != nil:
		err = r.scale(ctx, p)
	case p.result.Operation == admissionv1.Create:
		err = r.create(ctx, p)
	case p.result.Operation == admissionv1.Update:
		err = r.update(ctx, p)
	default:
		err = r.remove(ctx, p)
	}
	return p.result, p.conclude(err)
}

// conclude makes the result from the API server's error or response.
func (p *pending) conclude(err error) error {
	switch {
	case err != nil:
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return p.request.errorf("%w", err)
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		p.result.Status, p.result.Verdict = &s, Denied
		if p.unjudged {
			p.result.Verdict = Undecided
		}
	case p.undecided:
		p.result.Verdict = Undecided
	}
	p.addUncheckedNotes()
	if p.object != nil && p.connection.Empty() {
		p.result.Object = p.object.Object
		p.result.Name = p.object.GetName()
		p.result.Changes = p.changes()
	}
	return nil
}

// addUncheckedNotes adds notes about what an admission does not cover.
func (p *pending) addUncheckedNotes() {
	if p.assumed {
		p.addNote(AboutRequest, "%s is not in the state; the object in %s is used", p.id, p.request.Place())
	}
	if p.result.Operation == admissionv1.Create {
		p.addTemplateNote()
	}
	switch {
	case p.kind.schema == nil && len(p.result.Policies) == 0 && p.result.Verdict == Admitted:
		p.addNote(AboutRequest, "no policy matches, and no schema of %s is available: nothing was checked", p.kind.Kind)
	case p.kind.GroupKind() == policyKind && p.result.Operation != admissionv1.Delete && len(p.result.Policies) == 0:
		p.addNote(AboutRequest, "a cluster also compiles the policy and runs its tests, as sallyport policy check and sallyport policy test do")
	}
}

// addTemplateNote adds a note about a template for KubeVirt, which only KubeVirt can validate.
func (p *pending) addTemplateNote() {
	if p.kind.Group != v1alpha1.GroupName {
		return
	}
	for _, path := range []string{"spec.runtime.kubevirt.create.template", "spec.virtualMachineTemplate.spec.runtime.kubevirt.create.template"} {
		if _, given, _ := unstructured.NestedFieldNoCopy(p.object.Object, strings.Split(path, ".")...); given {
			p.addNote(AboutRequest, "KubeVirt validates %s when the machine is created: what it rejects is in condition Ready", path)
		}
	}
}

// decode decodes the object as the API server does: unknown fields are rejected, reported or dropped.
func (r *Reviewer) decode(p *pending) error {
	unknown, err := p.kind.prune(p.object)
	if p.request.Validation != Ignore {
		p.recordLines(unknown...)
	}
	if err == nil && len(unknown) > 0 && p.request.Validation == Strict {
		problems := make([]string, len(unknown))
		for i, name := range unknown {
			problems[i] = fmt.Sprintf("unknown field %q", name)
		}
		err = fmt.Errorf("strict decoding error: %s", strings.Join(problems, ", "))
	}
	if err != nil {
		p.object.Object = p.sent
		return apierrors.NewBadRequest(fmt.Sprintf(
			"%s in version %q cannot be handled as a %[1]s: %[3]v", p.kind.Kind, p.kind.Version, err))
	}
	for _, name := range unknown {
		if p.request.Validation == Warn {
			p.warn(fmt.Sprintf("unknown field %q", name))
		}
	}
	if p.kind.schema == nil {
		p.recordStage("server")
	} else {
		p.recordStage("schema")
		p.kind.schema.setDefaults(p.object)
		p.recordStage("schema")
	}
	p.object.SetNamespace(p.id.namespace)
	return nil
}

func (p *pending) warn(texts ...string) { p.result.Warnings = append(p.result.Warnings, texts...) }

// create handles POST.
func (r *Reviewer) create(ctx context.Context, p *pending) error {
	if err := r.decode(p); err != nil {
		return err
	}
	clearServerFields(p.object)
	if err := r.checkNamespace(p); err != nil {
		return err
	}
	if err := r.mutate(ctx, p); err != nil {
		return err
	}
	p.object.SetCreationTimestamp(metav1.NewTime(r.now().UTC().Truncate(time.Second)))
	p.object.SetUID(cmp.Or(p.request.Existing, r.world.newUID()))
	if p.object.GetName() == "" && p.object.GetGenerateName() != "" {
		p.object.SetName(r.generateName(p))
	}
	p.id.name = p.object.GetName()
	if err := r.validateNew(ctx, p); err != nil {
		return err
	}
	if err := r.validate(ctx, p); err != nil {
		return err
	}
	if r.world.get(p.id) != nil {
		return apierrors.NewAlreadyExists(p.resource(), p.id.name)
	}
	return r.store(p)
}

func (r *Reviewer) validateNew(ctx context.Context, p *pending) error {
	if s := p.kind.schema; s != nil {
		if _, said := p.object.Object["status"]; said && s.status {
			delete(p.object.Object, "status")
			p.recordStage("server")
		}
		p.object.SetGeneration(1)
		if errs := s.validateNew(ctx, p.kind, p.object); len(errs) > 0 {
			p.locateErrors(errs)
			return apierrors.NewInvalid(p.kind.GroupKind(), p.object.GetName(), errs)
		}
		p.warn(finalizerWarnings(p.object, nil)...)
	} else if p.object.GetName() == "" && !slices.Contains(reviewGroups, p.kind.Group) {
		return apierrors.NewInvalid(p.kind.GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name or generateName is required"),
		})
	}
	return nil
}

// reviewGroups are the groups whose objects are reviews, which are not stored.
var reviewGroups = []string{authenticationv1.GroupName, authorizationv1.GroupName}

// clearServerFields removes fields that only the API server sets.
func clearServerFields(u *unstructured.Unstructured) {
	for _, name := range []string{"creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", name)
	}
}

// generateName uses numbers instead of random suffixes, so that the same files give the same result.
func (r *Reviewer) generateName(p *pending) string {
	const most, digits = 63, 5
	base := p.object.GetGenerateName()
	base = base[:min(len(base), most-digits)]
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s%0*d", base, digits, n)
		if r.world.get(identity{p.id.GroupKind, p.id.namespace, name}) == nil {
			return name
		}
	}
}

// permanentNamespaces are the namespaces that every cluster has.
var permanentNamespaces = map[string]bool{metav1.NamespaceDefault: true, metav1.NamespaceSystem: true, metav1.NamespacePublic: true, corev1.NamespaceNodeLease: true}

// checkNamespace does what the admission plugin NamespaceLifecycle does at creation.
func (r *Reviewer) checkNamespace(p *pending) error {
	name := p.id.namespace
	if name == "" {
		return nil
	}
	found := r.world.get(identity{GroupKind: namespaceKind, name: name})
	switch {
	case found == nil && r.world.namespaces && !permanentNamespaces[name]:
		return apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	case found == nil:
		r.world.assumed[name] = true
		return nil
	}
	if phase, _, _ := unstructured.NestedString(found.Object, "status", "phase"); phase != string(corev1.NamespaceTerminating) {
		return nil
	}
	refused := apierrors.NewForbidden(p.resource(), p.id.name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace",
		Message: fmt.Sprintf("namespace %s is being terminated", name),
	})
	return refused
}

// update handles PUT. An object without resourceVersion gets the stored one, as with kubectl replace.
func (r *Reviewer) update(ctx context.Context, p *pending) error {
	if p.old == nil {
		return apierrors.NewNotFound(p.resource(), p.id.name)
	}
	if err := r.decode(p); err != nil {
		return err
	}
	if p.object.GetResourceVersion() == "" {
		p.object.SetResourceVersion(p.old.GetResourceVersion())
	}
	if err := p.checkUID(); err != nil {
		return err
	}
	if err := r.mutate(ctx, p); err != nil {
		return err
	}
	if p.object.GetResourceVersion() != p.old.GetResourceVersion() {
		return apierrors.NewConflict(p.resource(), p.id.name, fmt.Errorf(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}
	if err := r.validateChange(ctx, p); err != nil {
		return err
	}
	if err := r.validate(ctx, p); err != nil {
		return err
	}
	return r.store(p)
}

// checkUID rejects an update of another object of the same name, with the message of the API server's storage.
func (p *pending) checkUID() error {
	uid := p.object.GetUID()
	if uid == "" || uid == p.old.GetUID() {
		return nil
	}
	key := strings.Join([]string{"/registry", p.kind.resource.Group, p.kind.resource.Resource, p.id.namespace, p.id.name}, "/")
	return apierrors.NewConflict(p.resource(), p.id.name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "+
			"UID in precondition: %s, UID in object meta: %s", strings.ReplaceAll(key, "//", "/"), uid, p.old.GetUID()))
}

// validateChange does what the API server does to an update before it calls webhooks.
func (r *Reviewer) validateChange(ctx context.Context, p *pending) error {
	s := p.kind.schema
	p.object.SetGeneration(p.old.GetGeneration())
	if s != nil && s.status {
		s.preserveStatus(p)
	}
	if !sameButMetadata(p.object.Object, p.old.Object) {
		p.object.SetGeneration(p.old.GetGeneration() + 1)
	}
	if p.object.GetUID() == "" {
		p.object.SetUID(p.old.GetUID())
	}
	p.object.SetCreationTimestamp(p.old.GetCreationTimestamp())
	if deleted := p.old.GetDeletionTimestamp(); deleted != nil {
		p.object.SetDeletionTimestamp(deleted)
	}
	if grace := p.old.GetDeletionGracePeriodSeconds(); grace != nil && p.object.GetDeletionGracePeriodSeconds() == nil {
		p.object.SetDeletionGracePeriodSeconds(grace)
	}
	if s == nil {
		return nil
	}
	if errs := s.validateChange(ctx, p.kind, p.object, p.old); len(errs) > 0 {
		p.locateErrors(errs)
		return apierrors.NewInvalid(p.kind.GroupKind(), p.object.GetName(), errs)
	}
	p.warn(finalizerWarnings(p.object, p.old)...)
	return nil
}

// preserveStatus restores the status, which has a subresource of its own.
func (s *kindSchema) preserveStatus(p *pending) {
	sent, said := p.object.Object["status"]
	status, had := p.old.Object["status"]
	delete(p.object.Object, "status")
	if had {
		p.object.Object["status"] = status
	}
	if said && !apiequality.Semantic.DeepEqual(sent, status) {
		p.recordStage("server")
	}
}

// store stores the object of an admitted request.
func (r *Reviewer) store(p *pending) error {
	if s := p.kind.schema; s != nil { // what policies have added
		if _, err := s.prune(p.object); err != nil {
			return apierrors.NewInternalError(err)
		}
	}
	p.object.SetResourceVersion(r.world.newVersion())
	if p.undecided {
		return nil
	}
	stored := p.object.DeepCopy()
	if stored.GetDeletionTimestamp() != nil && len(stored.GetFinalizers()) == 0 {
		r.world.remove(p.id)
		return nil
	}
	r.world.store(stored, p.request.Place())
	return nil
}

// remove handles DELETE.
func (r *Reviewer) remove(ctx context.Context, p *pending) error {
	p.object = nil
	if p.id.GroupKind == namespaceKind && permanentNamespaces[p.id.name] && p.id.name != corev1.NamespaceNodeLease {
		return apierrors.NewForbidden(p.resource(), p.id.name, fmt.Errorf("this namespace may not be deleted"))
	}
	if err := r.mutate(ctx, p); err != nil {
		return err
	}
	if err := r.validate(ctx, p); err != nil {
		return err
	}
	if len(p.old.GetFinalizers()) == 0 {
		if !p.undecided {
			r.world.remove(p.id)
		}
		return nil
	}
	p.object = p.old.DeepCopy()
	if p.object.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(r.now().UTC().Truncate(time.Second))
		zero := int64(0)
		p.object.SetDeletionTimestamp(&now)
		p.object.SetDeletionGracePeriodSeconds(&zero)
		p.object.SetGeneration(p.object.GetGeneration() + 1)
	}
	return r.store(p)
}
