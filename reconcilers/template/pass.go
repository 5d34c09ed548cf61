package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// maxSteps bounds what one pass does in a failure domain. Whatever is left is for the next one.
const maxSteps = 24

// maxFormer is how many UIDs of earlier VSphereTemplates a status has.
const maxFormer = 8

// place is a failure domain during one pass.
type place struct {
	Domain
	key    string
	gone   bool // the templates are to go
	status v1alpha1.VSphereFailureDomainStatus
	ended  bool // nothing is left of it

	generation int64
	earlier    runtime.Earlier
	ready      metav1.Condition
	trouble    error
	again      time.Duration
}

// places are the failure domains of the spec, and those whose folders only the status has still: the templates there are to go.
func (r *Reconciler) places(t *v1alpha1.VSphereTemplate) (all []*place) {
	folders := map[string]bool{}
	add := func(domain *v1alpha1.VSphereFailureDomain, gone bool) {
		folders[string(domain.Folder)] = true
		status := domainStatus(&t.Status, domain.Name)
		if status.Folder == "" { // another name of the failure domain whose folder this is
			status.Imported = importedIn(&t.Status, string(domain.Folder))
		}
		status.Name, status.Folder = domain.Name, string(domain.Folder)
		all = append(all, &place{
			Domain: Domain{Owner: t.UID, Former: status.FormerUIDs, Namespace: t.Namespace, Object: t.Name, Spec: &t.Spec, Domain: domain},
			key:    keyOf(t.UID, string(domain.Folder)), gone: gone, status: status, generation: t.Generation, earlier: runtime.EarlierOf(t),
		})
	}
	deleted := !t.DeletionTimestamp.IsZero()
	for i := range t.Spec.FailureDomains {
		domain := &t.Spec.FailureDomains[i]
		if was := domainStatus(&t.Status, domain.Name); was.Folder == "" || was.Folder == string(domain.Folder) {
			add(domain, deleted)
		}
	}
	for _, was := range t.Status.FailureDomains {
		if was.Folder != "" && !folders[was.Folder] {
			add(&v1alpha1.VSphereFailureDomain{Name: was.Name, Folder: v1alpha1.InventoryPath(was.Folder)}, true)
		}
	}
	return all
}

// domainStatus gives a copy of what a status has of a failure domain.
func domainStatus(s *v1alpha1.VSphereTemplateStatus, name string) v1alpha1.VSphereFailureDomainStatus {
	for i := range s.FailureDomains {
		if s.FailureDomains[i].Name == name {
			return *s.FailureDomains[i].DeepCopy()
		}
	}
	return v1alpha1.VSphereFailureDomainStatus{}
}

// wants is what the failure domain is to have.
func (p *place) wants() *wanted {
	w := &wanted{
		Mark:   Mark{Release: p.Spec.Release, Digest: digest(p.Owner, p.Spec)},
		object: types.NamespacedName{Namespace: p.Namespace, Name: p.Object}, earlier: p.earlier,
		name: p.Spec.Name, keep: int(p.Spec.KeepVersions), paused: p.Spec.Paused, gone: p.gone, was: p.status.MoRef, failed: map[string]bool{},
	}
	return w
}

// pass takes one failure domain as far as it goes without waiting. After an error only what brings a template under its name again is done:
// that is not left for later.
func (r *Reconciler) pass(ctx context.Context, t *v1alpha1.VSphereTemplate, p *place) {
	w := p.wants()
	w.overdue = r.overdue(p)
	under := r.importing(p, w)
	if p.trouble == nil && r.waits(p) {
		return
	}
	last := step{do: none}
	store, err := r.Stores(ctx, t)
	p.trouble = cmp.Or(p.trouble, err)
	for range maxSteps {
		if err != nil {
			break
		}
		var view View
		if view, err = store.Look(ctx, p.Domain); err != nil {
			p.trouble = cmp.Or(p.trouble, err)
			break
		}
		p.own(&view)
		last = w.next(view)
		p.show(w, view)
		if last.do == none || last.do == hold || last.do == vanished || p.trouble != nil && last.do != promote {
			break
		}
		if err := r.current(ctx, t); err != nil {
			p.trouble = cmp.Or(p.trouble, err)
			break
		}
		if last.do == fetch {
			under = r.begin(t, p, w, store)
			break
		}
		if last.do == inherit { // and the next pass acts on it, once it is written down
			p.status.FormerUIDs = append(p.status.FormerUIDs, string(last.owner))
			p.status.FormerUIDs = p.status.FormerUIDs[max(0, len(p.status.FormerUIDs)-maxFormer):]
			for _, name := range slices.Sorted(maps.Keys(view.Earlier)) {
				if item := view.Earlier[name]; item.Owner == last.owner {
					p.status.Imported = appended(p.status.Imported, item.InstanceUUID)
				}
			}
			break
		}
		err := carryOut(ctx, store, p.Domain, w, last)
		if last.do == replace {
			r.Metrics.swapped(err)
		}
		p.trouble = cmp.Or(p.trouble, err)
	}
	if p.trouble == nil { // a vCenter that does not answer says nothing of it
		r.holds(p, last.do == hold && last.item != nil && w.named(last.item))
	}
	p.sum(r, last, under)
}

// holds notes whether a failure domain holds back the exchange of its names. Another process begins to count anew.
func (r *Reconciler) holds(p *place, swap bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !swap {
		delete(r.held, p.key)
	} else if r.held[p.key].IsZero() {
		r.held[p.key] = r.Now()
	}
}

// overdue reports whether a failure domain has held back the exchange of its names for long enough.
func (r *Reconciler) overdue(p *place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, is := r.held[p.key]
	return is && r.Now().Sub(since) >= swapPatience
}

// carryOut makes one change.
func carryOut(ctx context.Context, store Store, d Domain, w *wanted, s step) error {
	switch s.do {
	case finish:
		_, err := store.Finish(ctx, d, *s.item)
		return err
	case put:
		_, err := store.Rename(ctx, d, *s.item, s.name)
		return err
	case remove:
		item := *s.item
		if item.Name != doomed(&item) {
			var err error
			if item, err = store.Rename(ctx, d, item, doomed(&item)); err != nil {
				return err
			}
		}
		return store.Destroy(ctx, d, item)
	}
	var err error
	if s.do == replace {
		err = store.Replace(ctx, d, *s.old, s.name, *s.item)
	} else {
		_, err = store.Rename(ctx, d, *s.item, w.name)
	}
	if err != nil {
		w.failed[s.item.MoRef] = true
	}
	return err
}

// importing gives what is being imported, and tells of an import that has failed. One of what is not wanted any more is ended.
func (r *Reconciler) importing(p *place, w *wanted) *job {
	under, ended := r.jobs.under(p.key)
	switch {
	case under == nil:
		return nil
	case ended && under.mark.Release == w.Release && under.mark.Digest == w.Digest && !w.gone:
		if under.err != nil {
			p.fails(r, under.err)
		}
		return nil
	case ended:
		return nil
	}
	if w.gone || under.mark.Release != w.Release || under.mark.Digest != w.Digest {
		under.cancel()
	}
	w.importing = under.name
	return under
}

// begin begins an import.
func (r *Reconciler) begin(t *v1alpha1.VSphereTemplate, p *place, w *wanted, store Store) *job {
	what := Import{Name: w.temporary(), Mark: w.Mark, DiskType: cmp.Or(p.Spec.DiskType, w.layout)}
	what.Mark.Made = r.Now().Truncate(time.Millisecond)
	t = t.DeepCopy()
	d := p.Domain
	d.Spec, d.Domain = &t.Spec, d.Domain.DeepCopy()
	imported := slices.Clone(p.status.Imported)
	r.jobs.begin(p.key, what.Mark, what.Name, func(ctx context.Context, under *job) (err error) {
		begun := r.Now()
		defer func() { r.Metrics.imported(r.Now().Sub(begun), err) }()
		ctx, cancel := context.WithTimeoutCause(ctx, patience, errOverdue)
		defer cancel()
		defer func() {
			if err != nil && errors.Is(context.Cause(ctx), errOverdue) {
				err = errOverdue
			}
		}()
		what.Archive, err = r.Fetch(ctx, d)
		if err != nil {
			return err
		}
		defer func() { _ = what.Archive.Close() }()
		if err := r.current(ctx, t); err != nil {
			return err
		}
		what.InstanceUUID = string(uuid.NewUUID())
		if err := r.record(ctx, t, d.Domain, append(imported, what.InstanceUUID)); err != nil {
			return err
		}
		_, err = store.Import(ctx, d, what, func(percent int32) { under.at(v1alpha1.VSphereTemplateImporting, percent) })
		return err
	}, func() {
		select {
		case r.ended <- event.GenericEvent{Object: t}:
		case <-r.jobs.living.Done():
		}
	})
	under, _ := r.jobs.under(p.key)
	return under
}

// fails notes an error, and when to try again.
func (p *place) fails(r *Reconciler, err error) {
	p.trouble = cmp.Or(p.trouble, err)
	p.again = r.retries.When(p.key)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due[p.key] = r.Now().Add(p.again)
}

// waits reports whether an error was too short ago to try again. A changed spec is tried at once.
func (r *Reconciler) waits(p *place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := v1alpha1.ConditionReady.In(p.status.Conditions)
	if ready == nil || ready.ObservedGeneration != p.generation {
		delete(r.due, p.key)
		r.retries.Forget(p.key)
		return false
	}
	p.again = r.due[p.key].Sub(r.Now())
	return p.again > 0
}

// show writes down what is in the folder.
func (p *place) show(w *wanted, v View) {
	s := &p.status
	s.Versions = nil
	s.Release, s.MoRef, s.InstanceUUID, s.Size = "", "", "", nil
	whole := slices.Clone(v.Items)
	slices.SortStableFunc(whole, func(a, b Item) int { return b.Made.Compare(a.Made) })
	for _, item := range whole {
		if item.Stage != Whole || item.Name == doomed(&item) {
			continue
		}
		s.Versions = append(s.Versions, v1alpha1.VSphereTemplateVersion{Release: item.Release, Name: item.Name})
		if w.named(&item) {
			s.Release, s.MoRef, s.InstanceUUID = item.Release, item.MoRef, item.InstanceUUID
			s.Size = resource.NewQuantity(item.Bytes, resource.BinarySI)
			w.layout = item.DiskType
		}
	}
	s.Versions = s.Versions[:min(len(s.Versions), 16)]
}

// sum writes down how far the failure domain is.
func (p *place) sum(r *Reconciler, last step, under *job) {
	poll := cmp.Or(r.Poll, defaultPoll)
	p.status.Progress = nil
	switch {
	case p.trouble != nil && errors.Is(p.trouble, errChanged):
		p.trouble, p.again = nil, time.Millisecond
		return
	case p.trouble != nil:
		if p.again == 0 {
			p.fails(r, p.trouble)
		}
		p.set(v1alpha1.VSphereTemplateWaiting, reasonOf(p.trouble), runtime.Message(p.trouble))
		return
	}
	if under == nil {
		r.retries.Forget(p.key)
	}
	switch {
	case last.do == vanished:
		// One of that name may be wanted in another folder, and has waited for this.
		p.ended, p.again = true, time.Millisecond
	case under != nil:
		at, percent := under.step.Load().(v1alpha1.VSphereTemplateStep), under.percent.Load()/10*10
		p.status.Progress, p.again = &percent, poll
		p.set(at, v1alpha1.ReasonTemplateInProgress, fmt.Sprintf("release %s is in progress", p.Spec.Release))
		// What went wrong the last time stays there to be read while it is tried again.
		if was := v1alpha1.ConditionReady.In(p.status.Conditions); was != nil && wrong(was) && was.ObservedGeneration == p.generation && was.Status != metav1.ConditionTrue {
			p.ready.Status, p.ready.Reason, p.ready.Message = was.Status, was.Reason, was.Message
		}
	case last.do == hold:
		p.again = 30 * time.Second
		p.set(v1alpha1.VSphereTemplateWaiting, v1alpha1.ConditionReason(last.why.reason), last.why.message)
	case last.do == none:
		p.set(v1alpha1.VSphereTemplateDone, v1alpha1.ReasonTemplateReady, "")
	default:
		p.again = time.Millisecond
		p.set(stepOf(last.do), v1alpha1.ReasonTemplateInProgress, fmt.Sprintf("release %s is in progress", p.Spec.Release))
	}
}

// stepOf is what people are told of an action that is still to be done.
func stepOf(a action) v1alpha1.VSphereTemplateStep {
	switch a {
	case finish:
		return v1alpha1.VSphereTemplateFinishing
	case remove, put:
		return v1alpha1.VSphereTemplateRemoving
	}
	return v1alpha1.VSphereTemplateReplacing
}

// set writes the condition of a failure domain. It is ready as soon as the name has the release, whatever is left to be tidied up.
func (p *place) set(at v1alpha1.VSphereTemplateStep, reason v1alpha1.ConditionReason, message string) {
	p.status.Step = at
	status := metav1.ConditionFalse
	switch {
	case p.gone:
		if reason == v1alpha1.ReasonTemplateReady || reason == v1alpha1.ReasonTemplateInProgress {
			reason, message = v1alpha1.ReasonTerminating, "the template is being removed"
		}
	case runtime.IsUnavailable(p.trouble), runtime.IsTakingOver(p.trouble):
		status = metav1.ConditionUnknown
	case p.trouble == nil && p.status.Release == p.Spec.Release:
		status, reason = metav1.ConditionTrue, v1alpha1.ReasonTemplateReady
	}
	p.ready = v1alpha1.ConditionReady.Condition(status, reason, p.generation, message)
}

// sum writes the failure domains into the status, and whether all of them are ready.
func (r *Reconciler) sum(t *v1alpha1.VSphereTemplate, places []*place) {
	t.Status.ObservedGeneration = t.Generation
	t.Status.FailureDomains = nil
	ready := v1alpha1.ConditionReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonTemplateReady, t.Generation, "")
	for _, p := range places {
		if p.ended {
			continue
		}
		if p.ready.Type != "" {
			v1alpha1.SetCondition(&p.status.Conditions, p.ready, r.Now())
		}
		t.Status.FailureDomains = append(t.Status.FailureDomains, p.status)
		now := v1alpha1.ConditionReady.In(p.status.Conditions)
		if now != nil && now.Status != metav1.ConditionTrue && ready.Status == metav1.ConditionTrue {
			ready.Status, ready.Reason = now.Status, now.Reason
			ready.Message = fmt.Sprintf("failure domain %s: %s", p.status.Name, now.Message)
		}
	}
	v1alpha1.SetCondition(&t.Status.Conditions, ready, r.Now())
}
