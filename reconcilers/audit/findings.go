package audit

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// How many violations a policy's status keeps, how long its texts are, as the API has it, and of how many objects the texts are kept.
const (
	firstFew      = 20
	maxReason     = 64
	maxMessage    = 512
	maxIncomplete = 1024
	maxRequested  = 64
	maxTexts      = 5000
)

// progressPause is how long it is at least from one word about how far an audit is to the next.
const progressPause = 2 * time.Second

// state is what an audit was made of.
type state struct {
	uid                 types.UID
	generation          int64
	revision, requested string
}

func stateOf(policy *v1alpha1.RegoPolicy, revision string) state {
	return state{policy.UID, policy.Generation, revision, cut(policy.Annotations[v1alpha1.AnnotationAudit], maxRequested)}
}

// findings are what one audit of one policy found, and what has changed since.
//
// Of an object that the policy has nothing against nothing is kept but its name, about 120 bytes, so that it is known when it goes.
type findings struct {
	*Reconciler
	policy  string
	of      state
	began   time.Time
	missing []string // what could not be looked at
	ended   bool     // some of what can be looked at was not
	barred  bool     // some of it may not be looked at

	turn   *turn
	reader *kind     // that is listed
	looked int32     // at how many objects so far
	shown  time.Time // when that was told last

	watching context.Context // of the watches
	end      context.CancelFunc
	open     sync.WaitGroup // watches

	mu         sync.Mutex // of all that watches change
	kinds      []*kind
	texts      int // objects whose texts are kept
	unwatched  []string
	labels     map[string]string // of namespaces, if the policy selects by them
	namespaces map[string]bool   // whose labels have changed
	due        bool              // what has changed is to be told
	lost       bool              // a watch has ended, and everything is to be looked at again
}

// finding is what a policy has against an object, or why it could not judge it.
type finding struct {
	object    corev1.ObjectReference
	mode      v1alpha1.PolicyMode
	count     int
	against   []Objection // nil if there are too many texts
	undecided string
}

func (f *finding) same(other *finding) bool {
	if f == nil || other == nil {
		return f == other
	}
	return f.object == other.object && f.mode == other.mode && f.count == other.count && f.undecided == other.undecided &&
		slices.Equal(f.against, other.against)
}

// findingOf gives nil for what the policy has nothing against.
func findingOf(object *unstructured.Unstructured, judged Judgement, err error) *finding {
	f := &finding{mode: judged.Mode, count: len(judged.Against), object: corev1.ObjectReference{
		APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}}
	switch {
	case err != nil:
		f.undecided = cut(err.Error(), maxMessage)
	case f.count == 0:
		return nil
	}
	for _, o := range judged.Against {
		f.against = append(f.against, Objection{cut(o.Reason, maxReason), cut(o.Message, maxMessage)})
	}
	return f
}

// put notes what was found of an object. What has been heard of it while a list was read is newer than the list.
func (f *findings) put(k *kind, object *unstructured.Unstructured, judged Judgement, err error, fromList bool) {
	found, key := findingOf(object, judged, err), client.ObjectKeyFromObject(object)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.older(k, key, fromList) {
		return
	}
	was := k.objects[key]
	if was != nil && was.against != nil {
		f.texts--
	}
	switch {
	case found == nil || found.against == nil:
	case f.texts >= maxTexts:
		found.against = nil
	default:
		f.texts++
	}
	k.objects[key] = found
	if !fromList && !was.same(found) {
		f.changed()
	}
}

// forget drops what was found of an object: it is gone, going, or not the policy's any more.
func (f *findings) forget(k *kind, object client.Object, fromList bool) {
	key := client.ObjectKeyFromObject(object)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.older(k, key, fromList) {
		f.remove(k, key)
	}
}

func (f *findings) remove(k *kind, key types.NamespacedName) {
	was := k.objects[key]
	delete(k.objects, key)
	if was == nil {
		return
	}
	if was.against != nil {
		f.texts--
	}
	f.changed()
}

// older reports whether what a list says of an object is known to be, and notes of what is heard that it is newer.
func (f *findings) older(k *kind, key types.NamespacedName, fromList bool) bool {
	if !fromList && k.heard != nil {
		k.heard[key] = true
	}
	return fromList && k.heard[key]
}

// listing begins a list.
func (f *findings) listing(k *kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reader, k.heard = k, map[types.NamespacedName]bool{}
}

// listed ends a list; what was known and is not in it is gone. Nil is for one that was not read to its end.
func (f *findings) listed(k *kind, namespace string, there map[types.NamespacedName]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range k.objects {
		if there != nil && (namespace == "" || key.Namespace == namespace) && !there[key] && !k.heard[key] {
			f.remove(k, key)
		}
	}
	k.heard = nil
}

// proceeds tells from time to time how far it is.
func (f *findings) proceeds(k *kind) {
	f.looked++
	if now := f.Now(); now.Sub(f.began) >= progressPause && now.Sub(f.shown) >= progressPause {
		f.shown = now
		f.progress(f.policy, &v1alpha1.PolicyAudit{
			StartedAt: metav1.NewTime(f.began.Truncate(1e9)), Resource: k.GroupResource().String(), Objects: f.looked,
		})
	}
}

// result gives all that was found, for the status and for reports.
func (f *findings) result() (*v1alpha1.PolicyViolations, *reports.Page) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, page := &v1alpha1.PolicyViolations{
		AuditedAt: metav1.NewTime(f.began.Truncate(1e9)), Revision: f.of.revision, Requested: f.of.requested,
		Unwatched: cut(strings.Join(f.unwatched, "; "), maxIncomplete),
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
		if found.against == nil {
			page.LeftOut(found.object.Namespace, found.mode, found.count)
			continue
		}
		for _, o := range found.against {
			page.Fails(found.object, found.mode, o.Reason, o.Message)
		}
		if len(v.First) < firstFew {
			v.First = append(v.First, v1alpha1.PolicyViolation{
				APIVersion: found.object.APIVersion, Kind: found.object.Kind, Namespace: found.object.Namespace, Name: found.object.Name,
				Reason: found.against[0].Reason, Message: found.against[0].Message,
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

// inOrder gives what there is something to say of, by kind, namespace and name, and counts the rest.
func (f *findings) inOrder(page *reports.Page) (all []*finding) {
	for _, k := range f.kinds {
		from := len(all)
		for key, found := range k.objects {
			if found == nil {
				page.Passes(key.Namespace)
			} else {
				all = append(all, found)
			}
		}
		slices.SortFunc(all[from:], func(x, y *finding) int {
			return strings.Compare(x.object.Namespace+"/"+x.object.Name, y.object.Namespace+"/"+y.object.Name)
		})
	}
	return all
}
