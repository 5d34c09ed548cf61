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

// fieldOwner is who writes the entries.
const fieldOwner = "sallyport-registration"

// side is one of the two kinds of webhooks: its configuration, and that of the chart's own webhooks, which says how Sallyport is
// reached and what need not be registered.
type side struct {
	mutating bool
	path     string
	// speaks tells whether a policy has anything to say here.
	speaks func(*Policy) bool
	// possible are the operations that can be asked about here.
	possible []operation

	// own is the configuration as it was read, nil if it is not there, and have its entries.
	own  client.Object
	have map[string]*entry
	// closing has the annotations of an opening that is over removed.
	closing bool
	// sample is a webhook of the chart's, nil if there is none that can be used; why then says what is wrong.
	sample *admissionregistrationv1.ValidatingWebhook
	why    string
	// covered is what the chart's webhooks ask about.
	covered []rule
}

func (r *Reconciler) newSides() []*side {
	return []*side{
		{path: r.ValidatePath, speaks: func(p *Policy) bool { return p.Validates }, possible: possible},
		// What is being deleted cannot be changed. What somebody connects to could be, and somebody would be elsewhere than they asked.
		{mutating: true, path: r.MutatePath, speaks: func(p *Policy) bool { return p.Mutates }, possible: possibleChanges},
	}
}

// of gives the entries of a policy.
func (s *side) of(policy string) (entries []*entry) {
	for _, onNamespaces := range []bool{false, true} {
		if e := s.have[nameOf(policy, onNamespaces)]; e != nil {
			entries = append(entries, e)
		}
	}
	return entries
}

func (s *side) has(policy string) bool { return len(s.of(policy)) > 0 }

// kind names it, for people.
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

// read reads both configurations, the own one first: whoever writes a new caBundle into all of them begins with the chart's, and
// so an old one cannot be taken from there and written over a new one.
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

// sample takes from the chart's configuration how Sallyport is reached, and what need not be registered.
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

// get gives nil for what is not there.
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

// webhooksOf gives what is in a configuration in terms of the validating ones.
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

// client gives how the API server reaches a policy here.
func (s *side) client(policy string) admissionregistrationv1.WebhookClientConfig {
	client := *s.sample.ClientConfig.DeepCopy()
	client.Service.Path = ptr.To(s.path + policy)
	return client
}

// ignores tells that the chart has requests pass that nobody answers, which then counts for all.
func (s *side) ignores() bool {
	return ptr.Deref(s.sample.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Ignore
}

// with gives the configuration with those entries and nothing else.
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

// write gives the configuration those entries, if it is not so already, whatever else somebody has put there. If it was changed
// since it was read, it is a conflict.
func (r *Reconciler) write(ctx context.Context, s *side, entries map[string]*entry) error {
	after := s.with(entries)
	if equality.Semantic.DeepEqual(after, s.own) {
		return nil
	}
	patch := client.MergeFromWithOptions(s.own, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, after, patch, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("writing %s %s: %w", s.kind(), r.Configuration, err)
	}
	s.own = after
	return nil
}

// put writes the entries that there are to be, and gives those that are not written, with the reason. If the API server has something
// against all of them together, they are written one after the other, those of the oldest policy first: whatever it has against one
// stands in the way of no other. One that is not written stays as it was.
func (l *look) put(ctx context.Context, s *side, next map[string]*entry) (failed map[*entry]string, err error) {
	if err = l.write(ctx, s, next); err == nil {
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
	if err := l.write(ctx, s, next); err != nil {
		return failed, err
	}
	var errs []error
	slices.SortFunc(changed, l.older)
	for _, e := range changed {
		was := next[e.Name]
		next[e.Name] = e
		tried := l.write(ctx, s, next)
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

// restore has an entry stay as it was; nil is for one that was not there.
func restore(entries map[string]*entry, e, was *entry) {
	delete(entries, e.Name)
	if was != nil {
		entries[e.Name] = was
	}
}

// older orders entries by the age of their policies.
func (l *look) older(a, b *entry) int {
	return cmp.Or(l.there[a.policy].Compare(l.there[b.policy]), cmp.Compare(a.Name, b.Name))
}

// answered reports whether an error is what the API server says of a write, not that nobody knows what became of it, or that somebody
// else was faster.
func answered(err error) bool {
	var status apierrors.APIStatus // also without a reason: that of etcd, for what is too large, comes without
	return errors.As(err, &status) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
}

// isRefusal reports whether the API server has something against what was to be written, so that it is of no use to try again.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// brief is the API server's own part of a refusal.
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
