package audit

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// Limits of the status, as in its CRD: violations, and bytes of its texts. maxTexts limits the objects whose texts stay in memory.
const (
	firstFew      = 20
	maxReason     = 64
	maxMessage    = 512
	maxIncomplete = 1024
	maxRequested  = 64
	maxTexts      = 5000
)

// progressPause is the minimum time between two updates of the progress.
const progressPause = 2 * time.Second

// state identifies the policy that an audit evaluated, and the request for it.
type state struct {
	uid                 types.UID
	generation          int64
	revision, requested string
}

func stateOf(policy *v1alpha1.RegoPolicy, revision string) state {
	return state{policy.UID, policy.Generation, revision, cut(policy.Annotations[v1alpha1.AnnotationAudit], maxRequested)}
}

type findings struct {
	*Reconciler
	policy    string
	of        state
	began     time.Time
	missing   []string // why objects were not evaluated
	ended     bool     // readable objects remain: a read failed, or the audit took too long
	forbidden bool     // the API server denied a list that the policy may read
	barred    bool     // Sallyport or the policy has no right to list a resource

	turn      *turn
	evaluated int32     // objects evaluated so far
	shown     time.Time // last update of the progress

	kinds []*kind
	texts int // objects whose texts are kept
}

// finding are the violations of one object, or the error of its evaluation.
type finding struct {
	object     corev1.ObjectReference
	mode       v1alpha1.PolicyMode
	count      int
	violations []Violation // nil if there are too many texts
	undecided  string
}

// findingOf returns nil for a compliant object.
func findingOf(object *unstructured.Unstructured, evaluated Evaluation, err error) *finding {
	f := &finding{mode: evaluated.Mode, count: len(evaluated.Violations), object: corev1.ObjectReference{
		APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}}
	switch {
	case err != nil:
		f.undecided = cut(err.Error(), maxMessage)
	case f.count == 0:
		return nil
	}
	for _, o := range evaluated.Violations {
		f.violations = append(f.violations, Violation{cut(o.Reason, maxReason), cut(o.Message, maxMessage)})
	}
	return f
}

func (f *findings) put(k *kind, object *unstructured.Unstructured, evaluated Evaluation, err error) {
	found := findingOf(object, evaluated, err)
	switch {
	case found == nil:
		k.passed[object.GetNamespace()]++
		return
	case found.violations == nil:
	case f.texts >= maxTexts:
		found.violations = nil
	default:
		f.texts++
	}
	k.found = append(k.found, found)
}

// reportProgress counts an object, and updates the progress every progressPause.
func (f *findings) reportProgress(k *kind) {
	f.evaluated++
	if now := f.Now(); now.Sub(f.began) >= progressPause && now.Sub(f.shown) >= progressPause {
		f.shown = now
		f.progress(f.policy, &v1alpha1.PolicyAudit{
			StartedAt: metav1.NewTime(f.began.Truncate(1e9)), Resource: k.GroupResource().String(), Objects: f.evaluated,
		})
	}
}

// result returns the findings for the status and for reports.
func (f *findings) result() (*v1alpha1.PolicyViolations, *reports.Page) {
	v, page := &v1alpha1.PolicyViolations{
		AuditedAt: metav1.NewTime(f.began.Truncate(1e9)), Revision: f.of.revision, Requested: f.of.requested,
	}, &reports.Page{}
	missing, count := slices.Clone(f.missing), int32(0)
	for _, found := range f.inOrder(page) {
		v.Objects++
		if found.undecided != "" {
			if v.Undecided++; v.Undecided == 1 {
				missing = append(missing, f.undecidedOf(found))
			}
			page.Undecided(found.object, found.mode, found.undecided)
			continue
		}
		count++
		if found.violations == nil {
			page.LeftOut(found.object.Namespace, found.mode, found.count)
			continue
		}
		for _, o := range found.violations {
			page.Fails(found.object, found.mode, o.Reason, o.Message)
		}
		if len(v.First) < firstFew {
			v.First = append(v.First, v1alpha1.PolicyViolation{
				APIVersion: found.object.APIVersion, Kind: found.object.Kind, Namespace: found.object.Namespace, Name: found.object.Name,
				Reason: found.violations[0].Reason, Message: found.violations[0].Message,
			})
		}
	}
	v.Objects += int32(page.Passed())
	if v.Incomplete = cut(strings.Join(missing, "; "), maxIncomplete); v.Incomplete == "" {
		v.Count = ptr.To(count)
	} else {
		v.AtLeast = count
	}
	return v, page
}

func (f *findings) inOrder(page *reports.Page) (all []*finding) {
	for _, k := range f.kinds {
		for namespace, count := range k.passed {
			page.Passes(namespace, count)
		}
		slices.SortFunc(k.found, func(x, y *finding) int {
			return strings.Compare(x.object.Namespace+"/"+x.object.Name, y.object.Namespace+"/"+y.object.Name)
		})
		all = append(all, k.found...)
	}
	return all
}

// wait returns how long after now the next audit begins, 0 for never.
func (f *findings) wait() time.Duration {
	switch {
	case f.forbidden:
		return forbiddenRetry
	case f.Interval == 0:
		return 0
	}
	whole := f.Interval
	if f.ended || f.barred { // the cause may be gone soon
		whole = min(whole, lastRetry)
	}
	return max(firstRetry, whole-f.Now().Sub(f.began))
}
