package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/offline"
)

// situation has the input of an explanation: policies, webhooks, user and objects.
type situation struct {
	*cli.Cluster
	ctx      context.Context //nolint:containedctx // lives for one command
	policies []v1alpha1.RegoPolicy
	set      *catalog.Set
	states   []catalog.State
	hooks    *offline.Hooks
	user     authenticationv1.UserInfo
	own      bool   // user is the caller
	home     string // Sallyport's namespace; "" if unknown

	asked []*offline.Request
	state []offline.Document
	kinds []offline.ServedKind
	// notes lists what is unknown.
	notes []string
}

func newSituation(ctx context.Context, p *cli.Plugin, only string) (*situation, error) {
	as := impersonated(p)
	c, err := p.Connect()
	if err != nil {
		return nil, err
	}
	s := &situation{Cluster: c, ctx: ctx, own: as == nil}
	list, err := c.Policies(ctx, "")
	if err != nil {
		return nil, unread(err)
	}
	s.policies = list.Items
	if err := s.about(only); err != nil {
		return nil, err
	}
	if err := s.readHooks(); err != nil {
		return nil, err
	}
	s.compile()
	if as != nil {
		s.user = *as
		return s, nil
	}
	s.user, err = c.WhoAmI(ctx)
	return s, err
}

// about returns an error if a policy does not exist or is a library.
func (s *situation) about(only string) error {
	if only == "" {
		return nil
	}
	var names []string
	for i := range s.policies {
		switch {
		case s.policies[i].Name == only && s.policies[i].Spec.Library:
			return fmt.Errorf("RegoPolicy %s is a library: it does not evaluate requests, other policies import it", only)
		case s.policies[i].Name == only:
			return nil
		case !s.policies[i].Spec.Library:
			names = append(names, s.policies[i].Name)
		}
	}
	return fmt.Errorf("RegoPolicy %s does not exist; policies are: %s", only, strings.Join(names, ", "))
}

// deliberation is the timeout of every policy, in milliseconds: the speed of this machine must not change the explanation.
const deliberation = 60_000

// compile makes the set of the policies as the manager does.
func (s *situation) compile() {
	objects := make([]v1alpha1.RegoPolicy, len(s.policies))
	lastGood := false
	for i := range s.policies {
		objects[i] = *s.policies[i].DeepCopy()
		objects[i].Spec.TimeoutMilliseconds = deliberation
		active := v1alpha1.ConditionActive.In(s.policies[i].Status.Conditions)
		lastGood = lastGood || active != nil && active.Reason == string(v1alpha1.ReasonLastGoodRevision)
	}
	var good map[string]catalog.Revision
	if lastGood {
		good = s.lastGood()
	}
	s.set, s.states = new(catalog.Catalog).Build(s.ctx, objects, good)
}

func (s *situation) lastGood() map[string]catalog.Revision {
	stored := &appsv1.ControllerRevisionList{}
	if err := s.List(s.ctx, stored, client.InNamespace(s.home), client.HasLabels{keeper.PolicyLabel}); err != nil {
		s.addNote("the last good revision of a broken policy is active, but cannot be read: %v", err)
		return nil
	}
	return keeper.Newest(stored.Items, s.policies, func(stored *appsv1.ControllerRevision) *catalog.Revision {
		revision, err := keeper.Decode(stored)
		if err != nil {
			return nil
		}
		revision.Policy.Spec.TimeoutMilliseconds = deliberation
		return revision
	})
}

func (s *situation) addNote(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func (s *situation) readHooks() (err error) {
	var mutating []admissionregistrationv1.MutatingWebhookConfiguration
	var validating []admissionregistrationv1.ValidatingWebhookConfiguration
	for _, name := range []string{cli.Product, cli.PoliciesConfiguration} {
		m, v := admissionregistrationv1.MutatingWebhookConfiguration{}, admissionregistrationv1.ValidatingWebhookConfiguration{}
		for _, into := range []client.Object{&m, &v} {
			switch err := s.Get(s.ctx, client.ObjectKey{Name: name}, into); {
			case apierrors.IsForbidden(err):
				s.addNote("cannot read which requests the API server sends to policies; assuming the defaults of the chart: %v", err)
				return nil
			case apierrors.IsNotFound(err):
				s.addNote("%v: the API server calls no webhook of it", err)
			case err != nil:
				return fmt.Errorf("reading the webhook configurations: %w", err)
			}
		}
		mutating, validating = append(mutating, m), append(validating, v)
	}
	for i := range validating[0].Webhooks {
		if to := validating[0].Webhooks[i].ClientConfig.Service; to != nil {
			s.home = to.Namespace
		}
	}
	s.hooks, err = offline.NewHooks(mutating, validating, nil)
	return err
}

func (s *situation) requests(p *cli.Plugin, o *explaining, args []string) error {
	var documents []offline.Document
	var err error
	if len(args) > 0 {
		documents, err = s.named(p, o.which, args)
		if o.operation == "" && o.subresource == "" {
			o.operation = string(admissionv1.Create)
		}
	} else {
		documents, err = (&offline.Files{Stdin: p.In, Recursive: o.recursive}).Read(o.files...)
		if err == nil && len(documents) == 0 {
			err = fmt.Errorf("no object in %s", strings.Join(o.files, ", "))
		}
	}
	if err != nil {
		return err
	}
	for i := range documents {
		if err := s.request(&documents[i], o); err != nil {
			return err
		}
	}
	return nil
}

// named reads the objects of KIND NAME, KIND/NAME, or KIND with a selection.
func (s *situation) named(p *cli.Plugin, which cli.Selection, args []string) ([]offline.Document, error) {
	found, err := p.Find(s.Namespace, which, args...)
	if err != nil {
		return nil, err
	}
	documents := make([]offline.Document, len(found))
	for i := range found {
		documents[i] = offline.Document{Object: found[i].Object, File: strings.Join(args, " "), Line: 1}
	}
	return documents, nil
}

func (s *situation) request(d *offline.Document, o *explaining) error {
	u := &unstructured.Unstructured{Object: d.Object}
	operation := admissionv1.Operation(o.operation)
	r := &offline.Request{Document: *d, Operation: operation, Subresource: o.subresource, Command: o.command, User: s.user, Validation: offline.Strict}
	s.asked = append(s.asked, r)
	mapping, err := s.RESTMapper().RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
	switch {
	case meta.IsNoMatchError(err) && u.GetKind() != "Scale":
		return fmt.Errorf("%s: the cluster has no kind %s in %s", d.Place(), u.GetKind(), u.GetAPIVersion())
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: a Scale cannot be explained; use the object to scale, with the new number of replicas", d.Place())
	case err != nil:
		return err
	}
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	s.kinds = append(s.kinds, offline.ServedKind{GroupVersionKind: mapping.GroupVersionKind, Resource: mapping.Resource, Namespaced: namespaced})
	key := client.ObjectKey{Name: u.GetName()}
	if namespaced {
		if key.Namespace = u.GetNamespace(); key.Namespace == "" {
			key.Namespace = s.Namespace
		}
	}
	if key.Name == "" {
		return nil
	}
	there, err := s.stored(mapping.GroupVersionKind, key)
	switch {
	case err != nil:
		return err
	case there == nil:
		return nil
	case operation == admissionv1.Create:
		r.Existing = there.GetUID()
		return nil
	}
	s.state = append(s.state, offline.Document{Object: there.Object, File: "the cluster", Line: 1})
	return nil
}

// stored reads an object. It returns nil if the object does not exist or the user cannot read it.
func (s *situation) stored(gvk schema.GroupVersionKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	switch err := s.Get(s.ctx, key, u); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		s.addNote("assuming that %s %s does not exist: %v", gvk.Kind, key.Name, err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	return u, nil
}

func (s *situation) review(p *cli.Plugin, o *explaining) (*offline.Report, error) {
	var reader client.Client = s
	if s.own {
		reader = &ownClient{s}
	}
	store := facts.NewStore(nil, reader)
	store.Home(s.home)
	own, err := bundled.Kinds()
	if err != nil {
		return nil, err
	}
	reviewer, err := offline.New(offline.Options{
		Policies: s.set, State: s.state, Namespace: s.Namespace, Now: p.Now, Hooks: s.hooks, Own: own, Kinds: s.kinds,
		Facts:   store,
		Explain: &offline.Explaining{Policy: o.policy, States: s.states, Own: true},
	})
	if err != nil {
		return nil, err
	}
	report, err := reviewer.Review(s.ctx, s.asked...)
	if err != nil {
		return nil, err
	}
	s.registration(report)
	return report, nil
}

// ownClient is the client if the caller is the requester. It checks the requester's rights by SelfSubjectAccessReviews, which every
// user may create.
type ownClient struct{ client.Client }

// Create answers a SubjectAccessReview.
func (c *ownClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	asked, ok := object.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return errors.New("an explanation does not create objects")
	}
	own := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked.Spec.ResourceAttributes},
	}
	err := c.Client.Create(ctx, own, options...)
	asked.Status = own.Status
	return err
}
