package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field owner of the entries.
const fieldOwner = "sallyport-registration"

// side is one of the two kinds of webhooks: our configuration, and the chart's, which has the address of Sallyport and the rules that
// need no entry.
type side struct {
	mutating bool
	path     string
	// applies reports whether a policy has rules for this side.
	applies func(*Policy) bool
	// possible are the operations that entries of this side can have.
	possible []operation

	// own is the configuration that was read, nil if it does not exist, and have its entries.
	own  client.Object
	have map[string]*entry
	// closing makes the next write remove the annotations of an expired opening.
	closing bool
	// sample is a webhook of the chart. If it is nil, why says what is wrong with the chart's configuration.
	sample *admissionregistrationv1.ValidatingWebhook
	why    string
	// covered are the rules of the chart's webhooks.
	covered []rule
}

func (r *Reconciler) newSides() []*side {
	return []*side{ // mutating first: a policy may deny what it has not patched
		// A patch has no effect on DELETE. On CONNECT it could redirect the user to another target.
		{mutating: true, path: r.MutatePath, applies: func(p *Policy) bool { return p.Mutates }, possible: possibleChanges},
		{path: r.ValidatePath, applies: func(p *Policy) bool { return p.Validates }, possible: possible},
	}
}

func (s *side) of(policy string) (entries []*entry) {
	for _, suffix := range suffixes {
		if e := s.have[policy+suffix]; e != nil {
			entries = append(entries, e)
		}
	}
	return entries
}

func (s *side) has(policy string) bool { return len(s.of(policy)) > 0 }

func (s *side) kind() string {
	if s.mutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

func (s *side) object(name string) client.Object {
	meta := metav1.ObjectMeta{Name: name}
	if s.mutating {
		return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
}

// read reads both configurations, our own first. Package certs writes a new caBundle into the chart's first, so a bundle read here is
// never older than the one in the entries, which it replaces.
func (r *Reconciler) read(ctx context.Context, s *side) error {
	own, err := r.get(ctx, s.object(r.Configuration))
	if err != nil {
		return err
	}
	chart, err := r.get(ctx, s.object(r.Chart))
	if err != nil {
		return err
	}
	s.own, s.have = own, map[string]*entry{}
	for _, w := range webhooksOf(own) {
		if e, ours := entryOf(&w); ours {
			s.have[e.Name] = e
		}
	}
	r.sample(s, chart)
	return nil
}

func (r *Reconciler) sample(s *side, chart client.Object) {
	s.sample, s.why, s.covered = nil, fmt.Sprintf("%s %s, which has the address of Sallyport, does not exist", s.kind(), r.Chart), nil
	for _, w := range webhooksOf(chart) {
		s.covered = append(s.covered, w.Rules...)
		switch {
		case w.ClientConfig.Service == nil:
			s.why = fmt.Sprintf("%s %s does not name the Service of Sallyport", s.kind(), r.Chart)
		case r.NeedsBundle && len(w.ClientConfig.CABundle) == 0:
			s.why = fmt.Sprintf("%s %s has no caBundle for the certificate of Sallyport yet", s.kind(), r.Chart)
		case s.sample == nil:
			s.sample = &w
		}
	}
}

// get returns nil if the object does not exist.
func (r *Reconciler) get(ctx context.Context, object client.Object) (client.Object, error) {
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading webhook configuration %s: %w", object.GetName(), err)
	}
	return object, nil
}

func webhooksOf(configuration client.Object) []admissionregistrationv1.ValidatingWebhook {
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return c.Webhooks
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		all := make([]admissionregistrationv1.ValidatingWebhook, len(c.Webhooks))
		for i := range c.Webhooks {
			all[i] = asValidating(&c.Webhooks[i])
		}
		return all
	}
	return nil
}

func asValidating(m *admissionregistrationv1.MutatingWebhook) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: m.Name, ClientConfig: m.ClientConfig, Rules: m.Rules, FailurePolicy: m.FailurePolicy, MatchPolicy: m.MatchPolicy,
		NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector, SideEffects: m.SideEffects,
		TimeoutSeconds: m.TimeoutSeconds, AdmissionReviewVersions: m.AdmissionReviewVersions, MatchConditions: m.MatchConditions,
	}
}

// client returns the client configuration for a policy: the chart's, with the path of the policy.
func (s *side) client(policy string) admissionregistrationv1.WebhookClientConfig {
	client := *s.sample.ClientConfig.DeepCopy()
	client.Service.Path = ptr.To(s.path + policy)
	return client
}

// ignores reports whether the chart's webhooks have failurePolicy Ignore, which then applies to all entries.
func (s *side) ignores() bool {
	return ptr.Deref(s.sample.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Ignore
}

// with returns the configuration with exactly those entries.
func (s *side) with(entries map[string]*entry) client.Object {
	after := s.own.DeepCopyObject().(client.Object)
	if s.closing {
		Close(after)
	}
	names := slices.Sorted(maps.Keys(entries))
	switch c := after.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		c.Webhooks = nil
		for _, name := range names {
			c.Webhooks = append(c.Webhooks, entries[name].ValidatingWebhook)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		c.Webhooks = nil
		for _, name := range names {
			c.Webhooks = append(c.Webhooks, entries[name].mutating())
		}
	}
	return after
}

// write replaces the entries of the configuration, including those of other clients, if they differ. It returns a conflict if the
// configuration was changed since the read.
func (r *Reconciler) write(ctx context.Context, s *side, entries map[string]*entry) error {
	after := s.with(entries)
	if equality.Semantic.DeepEqual(after, s.own) {
		r.remember(s, entries)
		return nil
	}
	patch := client.MergeFromWithOptions(s.own, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, after, patch, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("writing %s %s: %w", s.kind(), r.Configuration, err)
	}
	r.remember(s, entries)
	s.own = after
	return nil
}

// put writes the entries and returns those that could not be written, with the reason. If the API server rejects all together, they are
// written one by one, the oldest policy first, so that a rejected entry does not block the others. A rejected entry remains unchanged in
// the configuration.
func (reg *pass) put(ctx context.Context, s *side, next map[string]*entry) (failed map[*entry]string, err error) {
	if err = reg.write(ctx, s, next); err == nil {
		return nil, nil
	}
	failed = map[*entry]string{}
	var changed []*entry
	for name, e := range maps.Clone(next) {
		if was := s.have[name]; !e.same(was) {
			changed = append(changed, e)
			failed[e] = err.Error()
			restore(next, e, was)
		}
	}
	if !answered(err) {
		return failed, err
	}
	if err := reg.write(ctx, s, next); err != nil {
		return failed, err
	}
	var errs []error
	slices.SortFunc(changed, reg.older)
	for _, e := range changed {
		was := next[e.Name]
		next[e.Name] = e
		tried := reg.write(ctx, s, next)
		if tried == nil {
			delete(failed, e)
			continue
		}
		failed[e] = brief(tried)
		restore(next, e, was)
		switch {
		case !answered(tried):
			return failed, tried
		case !isRefusal(tried):
			errs = append(errs, tried)
		}
	}
	return failed, errors.Join(errs...)
}

// restore replaces an entry by its previous version; nil removes it.
func restore(entries map[string]*entry, e, was *entry) {
	delete(entries, e.Name)
	if was != nil {
		entries[e.Name] = was
	}
}

// older compares entries by the creation of their policies.
func (reg *pass) older(a, b *entry) int {
	return cmp.Or(reg.there[a.policy].Compare(reg.there[b.policy]), cmp.Compare(a.Name, b.Name))
}

// answered reports whether the API server rejected a write. If not, the result is unknown, or another client wrote first.
func answered(err error) bool {
	var status apierrors.APIStatus // with any reason: etcd's error for too large an object has none
	return errors.As(err, &status) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
}

// isRefusal reports whether the API server rejected the content of a write, so that a retry would fail too.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// brief returns the causes in an error of the API server, without the text around them.
func brief(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	var causes []string
	for _, c := range status.Status().Details.Causes {
		causes = append(causes, strings.TrimPrefix(c.Field+": "+c.Message, ": "))
	}
	return strings.Join(causes, "; ")
}
