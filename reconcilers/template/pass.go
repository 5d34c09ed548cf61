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
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// maxSteps limits the steps of one pass in a failure domain. The next pass does the rest.
const maxSteps = 24

// maxFormer limits the UIDs of earlier VSphereTemplates in a status.
const maxFormer = 8

// place is a failure domain during one pass.
type place struct {
	templates.Domain
	key    string
	gone   bool // its templates must be removed
	status v1alpha1.VSphereFailureDomainStatus
	ended  bool // nothing is left of it

	generation int64
	earlier    runtime.Earlier
	ready      metav1.Condition
	trouble    error
	again      time.Duration
}

// places returns the failure domains of the spec, and those whose folders are only left in the status: their
// templates must be removed.
func (r *Reconciler) places(t *v1alpha1.VSphereTemplate) (all []*place) {
	folders := map[string]bool{}
	add := func(domain *v1alpha1.VSphereFailureDomain, gone bool) {
		folders[string(domain.Folder)] = true
		status := domainStatus(&t.Status, domain.Name)
		if status.Folder == "" { // the folder belonged to a failure domain with another name
			status.Imported = importedIn(&t.Status, string(domain.Folder))
		}
		status.Name, status.Folder = domain.Name, string(domain.Folder)
		all = append(all, &place{
			Domain: templates.Domain{Owner: t.UID, Former: status.FormerUIDs, Namespace: t.Namespace, Object: t.Name, Spec: &t.Spec, Domain: domain},
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

func domainStatus(s *v1alpha1.VSphereTemplateStatus, name string) v1alpha1.VSphereFailureDomainStatus {
	for i := range s.FailureDomains {
		if s.FailureDomains[i].Name == name {
			return *s.FailureDomains[i].DeepCopy()
		}
	}
	return v1alpha1.VSphereFailureDomainStatus{}
}

// wanted returns the wanted content of the failure domain.
func (p *place) wanted() *wanted {
	w := &wanted{
		Mark:   templates.Mark{Release: p.Spec.Release, Digest: digest(p.Owner, p.Spec)},
		object: types.NamespacedName{Namespace: p.Namespace, Name: p.Object}, earlier: p.earlier,
		name: p.Spec.Name, keep: int(p.Spec.KeepVersions), paused: p.Spec.Paused, gone: p.gone, was: p.status.MoRef, failed: map[string]bool{},
	}
	return w
}

// pass advances one failure domain as far as possible without waiting. After an error it only takes the step that
// puts a template under its name again, which must not be delayed.
func (r *Reconciler) pass(ctx context.Context, t *v1alpha1.VSphereTemplate, p *place) {
	w := p.wanted()
	w.overdue = r.overdue(p)
	under := r.currentJob(p, w)
	if p.trouble == nil && r.backingOff(p) {
		return
	}
	last := step{do: none}
	store, err := r.Stores(ctx, t)
	p.trouble = cmp.Or(p.trouble, err)
	for range maxSteps {
		if err != nil {
			break
		}
		var view templates.View
		if view, err = store.Look(ctx, p.Domain); err != nil {
			p.trouble = cmp.Or(p.trouble, err)
			break
		}
		p.separateForeign(&view)
		last = w.next(view)
		p.recordContent(w, view)
		if last.do == none || last.do == hold || last.do == vanished || p.trouble != nil && last.do != promote {
			break
		}
		if err := r.checkUnchanged(ctx, t); err != nil {
			p.trouble = cmp.Or(p.trouble, err)
			break
		}
		if last.do == fetch {
			under = r.begin(t, p, w, store)
			break
		}
		if last.do == inherit { // the next pass acts on it, once it is persisted
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
			r.Metrics.countSwap(err)
		}
		p.trouble = cmp.Or(p.trouble, err)
	}
	if p.trouble == nil { // if vCenter does not answer, the state is unknown
		r.recordHeldSwap(p, last.do == hold && last.item != nil && w.named(last.item))
	}
	p.recordProgress(r, last, under)
}

// recordHeldSwap records since when a failure domain holds back a swap of names. After a restart of the process the
// time starts again.
func (r *Reconciler) recordHeldSwap(p *place, swap bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !swap {
		delete(r.heldSince, p.key)
	} else if r.heldSince[p.key].IsZero() {
		r.heldSince[p.key] = r.Now()
	}
}

// overdue reports whether a failure domain has held back a swap of names for long enough.
func (r *Reconciler) overdue(p *place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, is := r.heldSince[p.key]
	return is && r.Now().Sub(since) >= swapPatience
}

func carryOut(ctx context.Context, store templates.Store, d templates.Domain, w *wanted, s step) error {
	switch s.do {
	case finish:
		_, err := store.Finish(ctx, d, *s.item)
		return err
	case put:
		_, err := store.Rename(ctx, d, *s.item, s.name)
		return err
	case remove:
		item := *s.item
		if item.Name != doomedName(&item) {
			var err error
			if item, err = store.Rename(ctx, d, item, doomedName(&item)); err != nil {
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

// currentJob returns the running import of the failure domain, and records the error of one that failed. An import
// that is no longer wanted is canceled.
func (r *Reconciler) currentJob(p *place, w *wanted) *job {
	under, ended := r.jobs.find(p.key)
	switch {
	case under == nil:
		return nil
	case ended && under.mark.Release == w.Release && under.mark.Digest == w.Digest && !w.gone:
		if under.err != nil {
			p.recordError(r, under.err)
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

func (r *Reconciler) begin(t *v1alpha1.VSphereTemplate, p *place, w *wanted, store templates.Store) *job {
	what := templates.Import{Name: w.temporaryName(), Mark: w.Mark, DiskType: cmp.Or(p.Spec.DiskType, w.layout)}
	what.Mark.Made = r.Now().Truncate(time.Millisecond)
	t = t.DeepCopy()
	d := p.Domain
	d.Spec, d.Domain = &t.Spec, d.Domain.DeepCopy()
	imported := slices.Clone(p.status.Imported)
	return r.jobs.begin(p.key, what.Mark, what.Name, func(ctx context.Context, under *job) (err error) {
		begun := r.Now()
		defer func() { r.Metrics.observeImport(r.Now().Sub(begun), err) }()
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
		if err := r.checkUnchanged(ctx, t); err != nil {
			return err
		}
		what.InstanceUUID = string(uuid.NewUUID())
		if err := r.recordImport(ctx, t, d.Domain, append(imported, what.InstanceUUID)); err != nil {
			return err
		}
		_, err = store.Import(ctx, d, what, func(percent int32) { under.at(v1alpha1.VSphereTemplateImporting, percent) })
		return err
	}, func() {
		select {
		case r.ended <- event.GenericEvent{Object: t}:
		case <-r.jobs.ctx.Done():
		}
	})
}

// recordError records an error and schedules the retry.
func (p *place) recordError(r *Reconciler, err error) {
	p.trouble = cmp.Or(p.trouble, err)
	p.again = r.retries.When(p.key)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due[p.key] = r.Now().Add(p.again)
}

// backingOff reports whether the last error was too recent to retry. A changed spec, or a VSphereServer that
// can be used again, is retried at once.
func (r *Reconciler) backingOff(p *place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := v1alpha1.ConditionReady.In(p.status.Conditions)
	if r.usable[p.key] || ready == nil || ready.ObservedGeneration != p.generation {
		delete(r.usable, p.key)
		delete(r.due, p.key)
		r.retries.Forget(p.key)
		return false
	}
	p.again = r.due[p.key].Sub(r.Now())
	return p.again > 0
}

// recordContent writes the content of the folder into the status.
func (p *place) recordContent(w *wanted, v templates.View) {
	s := &p.status
	s.Versions = nil
	s.Release, s.MoRef, s.InstanceUUID, s.Size = "", "", "", nil
	whole := slices.Clone(v.Items)
	slices.SortStableFunc(whole, func(a, b templates.Item) int { return b.Made.Compare(a.Made) })
	for _, item := range whole {
		if item.Stage != templates.Whole || item.Name == doomedName(&item) {
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

// recordProgress writes the progress of the failure domain into the status.
func (p *place) recordProgress(r *Reconciler, last step, under *job) {
	poll := cmp.Or(r.Poll, defaultPoll)
	p.status.Progress = nil
	switch {
	case p.trouble != nil && errors.Is(p.trouble, errChanged):
		p.trouble, p.again = nil, time.Millisecond
		return
	case p.trouble != nil:
		if p.again == 0 {
			p.recordError(r, p.trouble)
		}
		p.setReady(v1alpha1.VSphereTemplateWaiting, reasonOf(p.trouble), runtime.Message(p.trouble))
		return
	}
	if under == nil {
		r.retries.Forget(p.key)
	}
	switch {
	case last.do == vanished:
		// A failure domain with the same name but another folder may have waited for this.
		p.ended, p.again = true, time.Millisecond
	case under != nil:
		at, percent := under.step.Load().(v1alpha1.VSphereTemplateStep), under.percent.Load()/10*10
		p.status.Progress, p.again = &percent, poll
		p.setReady(at, v1alpha1.ReasonTemplateInProgress, fmt.Sprintf("release %s is in progress", p.Spec.Release))
		// The last error stays visible during the retry.
		if was := v1alpha1.ConditionReady.In(p.status.Conditions); was != nil && warns(was) && was.ObservedGeneration == p.generation && was.Status != metav1.ConditionTrue {
			p.ready.Status, p.ready.Reason, p.ready.Message = was.Status, was.Reason, was.Message
		}
	case last.do == hold:
		p.again = 30 * time.Second
		p.setReady(v1alpha1.VSphereTemplateWaiting, v1alpha1.ConditionReason(last.why.reason), last.why.message)
	case last.do == none:
		p.setReady(v1alpha1.VSphereTemplateDone, v1alpha1.ReasonTemplateReady, "")
	default:
		p.again = time.Millisecond
		p.setReady(reportedStep(last.do), v1alpha1.ReasonTemplateInProgress, fmt.Sprintf("release %s is in progress", p.Spec.Release))
	}
}

// reportedStep returns the step in the status for a pending action.
func reportedStep(a action) v1alpha1.VSphereTemplateStep {
	switch a {
	case finish:
		return v1alpha1.VSphereTemplateFinishing
	case remove, put:
		return v1alpha1.VSphereTemplateRemoving
	}
	return v1alpha1.VSphereTemplateReplacing
}

// setReady sets the condition of a failure domain. It is ready as soon as the name has the release, even if old
// versions remain to be cleaned up.
func (p *place) setReady(at v1alpha1.VSphereTemplateStep, reason v1alpha1.ConditionReason, message string) {
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

func (r *Reconciler) updateStatus(t *v1alpha1.VSphereTemplate, places []*place) {
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
