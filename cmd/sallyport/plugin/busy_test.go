package plugin

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
)

const job, otherJob = "https://ci.example.com/jobs/1", "https://ci.example.com/jobs/2"

// marked gives the Lease of the machine ci-0, nil if there is none.
func (w *world) marked(namespace string) *coordinationv1.Lease {
	w.Helper()
	lease := &coordinationv1.Lease{}
	err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: busy.LeaseName("ci-0")}, lease)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.Must(err)
	return lease
}

func TestBusyAndIdle(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	machine := vm(ns, "ci-0")
	w.make(machine)
	in := " -n " + ns
	stamped := func() string {
		t.Helper()
		w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
		return machine.Annotations[v1alpha1.AnnotationBusyStamp]
	}
	w.plugin("busy ci-0 --for 30m --holder "+job+in, 0, "virtualmachine.sallyport.dev/ci-0 is busy until ", ": "+job)
	lease, first := w.marked(ns), stamped()
	if busy.Of(lease) != machine.UID || busy.Holder(lease) != job || time.Until(busy.Until(lease, time.Now())) > 30*time.Minute || first == "" ||
		len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != machine.UID {
		t.Errorf("the Lease is %+v, the stamp %q", lease, first)
	}
	w.plugin("busy ci-0 --for 1h --holder "+otherJob+in, 1, "error: VirtualMachine ci-0 is already busy until ", ": "+job)
	w.plugin("busy svm/ci-0 --for 1h --holder "+job+in, 0, "is busy until ")
	again := w.marked(ns)
	if !again.Spec.AcquireTime.Equal(lease.Spec.AcquireTime) || busy.Holder(again) != job || !busy.Until(again, time.Now()).After(busy.Until(lease, time.Now())) || stamped() == first {
		t.Errorf("marked again: %+v", again.Spec)
	}
	for _, line := range []string{"idle ci-0", "idle ci-0 --holder " + otherJob} {
		w.plugin(line+in, 1, "VirtualMachine ci-0 is busy until ", ": "+job+"; to remove the mark, add --holder \""+job+"\" or --force")
	}
	second := stamped()
	w.plugin("idle ci-0 --holder "+job+in, 0, "virtualmachine.sallyport.dev/ci-0 is no longer busy")
	if left := w.marked(ns); left != nil || stamped() == second {
		t.Errorf("after idle there is %+v", left)
	}
	w.plugin("idle ci-0 --holder "+job+in, 0, "is not busy\n")
	w.plugin("busy ci-0 --for 1h --holder "+job+in, 0)
	w.plugin("idle ci-0 --force"+in, 0, "is no longer busy")

	for line, says := range map[string]string{
		"busy ci-0 --for 1h":                    "--holder is required",
		"busy ci-0 --holder " + job:             "invalid --for 0s: must be between 1s and 24h0m0s",
		"busy ci-0 --for 25h --holder " + job:   "invalid --for 25h0m0s: must be between 1s and 24h0m0s",
		"busy --for 1h --holder " + job:         "specify exactly one VirtualMachine, got 0 names",
		"busy svmop/x --for 1h --holder " + job: "svmop/x is not a VirtualMachine",
		"busy ci-9 --for 1h --holder " + job:    `virtualmachines.sallyport.dev "ci-9" not found`,
	} {
		w.plugin(line+in, 1, says)
	}
}

// Leases that are there already.
func TestBusyWhereThereIsALease(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		change func(*coordinationv1.Lease)
		says   string // what is refused; "" if it is taken over
	}{
		"expired": {func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-2 * time.Hour)))
		}, ""},
		"of an earlier machine": {func(l *coordinationv1.Lease) { l.Labels[v1alpha1.LabelBusyMachine] = "u-earlier" }, ""},
		"for something else":    {func(l *coordinationv1.Lease) { l.Labels = nil }, "existing Lease ci-0-busy does not belong to Sallyport: it has no label sallyport.dev/busy-machine"},
		"of another":            {func(*coordinationv1.Lease) {}, "VirtualMachine ci-0 is already busy until "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, w.plane)
			ns := w.namespace()
			machine, lease := vm(ns, "ci-0"), &coordinationv1.Lease{}
			w.make(machine)
			lease.Namespace, lease.Name = ns, busy.LeaseName("ci-0")
			busy.Mark(lease, machine, otherJob, time.Now(), time.Hour)
			tc.change(lease)
			w.make(lease)
			if tc.says != "" {
				w.plugin("busy ci-0 --for 30m --holder "+job+" -n "+ns, 1, tc.says)
				if left := w.marked(ns); left.ResourceVersion != lease.ResourceVersion {
					t.Errorf("the Lease was written: %+v", left)
				}
				return
			}
			w.plugin("busy ci-0 --for 30m --holder "+job+" -n "+ns, 0, "is busy until ")
			if is := w.marked(ns); busy.Of(is) != machine.UID || busy.Holder(is) != job || !is.Spec.AcquireTime.Equal(is.Spec.RenewTime) {
				t.Errorf("the Lease is %+v", is)
			}
		})
	}
}

// The time is that of the API server: neither does a mark end late or soon, nor does one of another job seem to have ended.
func TestBusyByAWrongClock(t *testing.T) {
	w := newWorld(t)
	for name, ahead := range map[string]time.Duration{"ahead": 2 * time.Hour, "behind": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, w.plane)
			ns := w.namespace()
			w.make(vm(ns, "ci-0"))
			// The clock is off by hours, so minutes tell it from the right one, also on a slow machine.
			before := time.Now().Add(-10 * time.Minute)
			if r := w.intercepted(markBusy+ns, ahead, nil); r.code != 0 {
				t.Fatalf("exit %d: %s", r.code, r.stderr)
			}
			ends, at := busy.Until(w.marked(ns), time.Now()), 30*time.Minute
			if ends.Before(before.Add(at)) || ends.After(time.Now().Add(at)) {
				t.Errorf("the machine is busy until %s", ends)
			}
			r := w.intercepted("busy ci-0 --for 30m --holder "+otherJob+" -n "+ns, ahead, nil)
			if want := "VirtualMachine ci-0 is already busy until "; r.code != 1 || !strings.Contains(r.stderr, want) {
				t.Errorf("exit %d, and %q does not say %q", r.code, r.stderr, want)
			}
		})
	}
}

var errLost = errors.New("connection reset by peer")

// A machine that goes is not marked, whenever it is that it begins to go; and what is not known to be done is taken back.
func TestBusyFails(t *testing.T) {
	w := newWorld(t)
	name := func(w *world, pool *v1alpha1.VirtualMachinePool, m *v1alpha1.VirtualMachine) {
		pool.Spec.ScaleDownTargets = []v1alpha1.ScaleDownTarget{targetNamed(m)}
		w.Must(w.Update(w.Context(), pool))
	}
	for what, tc := range map[string]struct {
		before, between, after func(*world, *v1alpha1.VirtualMachinePool, *v1alpha1.VirtualMachine) // of the Lease and the stamp
		lost, stampLost        bool                                                                 // the reply
		says                   string
	}{
		"being deleted": {says: "VirtualMachine ci-0 is being deleted", before: func(w *world, _ *v1alpha1.VirtualMachinePool, m *v1alpha1.VirtualMachine) {
			w.Must(w.Delete(w.Context(), m))
		}},
		"deleted before the stamp": {says: "VirtualMachine ci-0 is being deleted", between: func(w *world, _ *v1alpha1.VirtualMachinePool, m *v1alpha1.VirtualMachine) {
			w.Must(w.Delete(w.Context(), m))
		}},
		"gone before the stamp": {says: "VirtualMachine ci-0 has just been deleted", between: func(w *world, _ *v1alpha1.VirtualMachinePool, m *v1alpha1.VirtualMachine) {
			w.forget(m)
		}},
		"another one before the stamp": {says: "annotating VirtualMachine ci-0: ", between: func(w *world, pool *v1alpha1.VirtualMachinePool, m *v1alpha1.VirtualMachine) {
			w.forget(m)
			w.make(memberOf(pool, 0))
		}},
		"named":                   {says: "will be deleted because it is in spec.scaleDownTargets of VirtualMachinePool ci", before: name},
		"named before the stamp":  {says: "is in spec.scaleDownTargets", between: name},
		"named before it is read": {says: "is in spec.scaleDownTargets", after: name},
		"the pool is being deleted": {says: "is deleted together with VirtualMachinePool ci", before: func(w *world, pool *v1alpha1.VirtualMachinePool, _ *v1alpha1.VirtualMachine) {
			pool.Finalizers = []string{"example.com/kept"}
			w.Must(w.Update(w.Context(), pool))
			w.Must(w.Delete(w.Context(), pool))
		}},
		"the pool is gone": {says: "is deleted together with VirtualMachinePool ci", after: func(w *world, pool *v1alpha1.VirtualMachinePool, _ *v1alpha1.VirtualMachine) {
			w.forget(pool)
		}},
		"the reply of the Lease is lost": {lost: true, says: "marking VirtualMachine ci-0 as busy: Post "},
		"the reply of the stamp is lost": {stampLost: true, says: "annotating VirtualMachine ci-0: Patch "},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorldOn(t, w.plane)
			pool, members := w.poolAt(1)
			at := func(f func(*world, *v1alpha1.VirtualMachinePool, *v1alpha1.VirtualMachine)) {
				if f != nil {
					f(w, pool, members[0].DeepCopy())
				}
			}
			at(tc.before)
			r := w.intercepted(markBusy+pool.Namespace, 0, map[string]hook{
				http.MethodPost: func(send sender) (*http.Response, error) {
					response, err := send()
					if tc.lost {
						return nil, errLost
					}
					return response, err
				},
				http.MethodPatch: func(send sender) (*http.Response, error) {
					at(tc.between)
					response, err := send()
					at(tc.after)
					if tc.stampLost {
						return nil, errLost
					}
					return response, err
				},
			})
			if r.code != 1 || !strings.Contains(r.stderr, tc.says) {
				t.Errorf("exit %d, and %q does not say %q", r.code, r.stderr, tc.says)
			}
			if left := w.marked(pool.Namespace); left != nil {
				t.Errorf("the Lease is left: %+v", left)
			}
		})
	}
}

// markBusy is the command that marks the machine ci-0 for half an hour, without the namespace.
const markBusy = "busy ci-0 --for 30m --holder " + job + " -n "

// A command that fails takes no Lease away that is not what it wrote: the mark of the same job by another command, or before.
func TestBusyTakesBackItsOwn(t *testing.T) {
	w := newWorld(t)
	for what, before := range map[string]bool{"marked before": true, "marked meanwhile": false} {
		t.Run(what, func(t *testing.T) {
			w := newWorldOn(t, w.plane)
			pool, _ := w.poolAt(1)
			if before {
				w.plugin(markBusy+pool.Namespace, 0)
			}
			r := w.intercepted(markBusy+pool.Namespace, 0, map[string]hook{http.MethodPatch: func(sender) (*http.Response, error) {
				if !before {
					w.plugin(markBusy+pool.Namespace, 0)
				}
				return nil, errLost
			}})
			if r.code != 1 || !strings.Contains(r.stderr, errLost.Error()) {
				t.Errorf("exit %d: %s", r.code, r.stderr)
			}
			if w.marked(pool.Namespace) == nil {
				t.Error("the Lease of another command was taken away")
			}
		})
	}
}

// Every order in which what is written here meets a pass of the pool reconciler that gives up the machine unnamed: the members are
// read (M), the Leases are read (Q), the machine is deleted as it was read (D); the Lease is written (L), the machine is stamped (S).
// After that comes another pass. A machine for which the command succeeded is there and stays.
func TestBusyAgainstAPool(t *testing.T) {
	w := newWorld(t)
	for _, order := range []string{"LSMQD", "LMSQD", "LMQSD", "LMQDS", "MLSQD", "MLQSD", "MLQDS", "MQLSD", "MQLDS", "MQDLS"} {
		t.Run(order, func(t *testing.T) {
			w := newWorldOn(t, w.plane)
			pool, members := w.poolAt(1)
			p := &pass{world: w, key: client.ObjectKeyFromObject(members[0])}
			left := order
			upTo := func(step string) { // what the pool does before this step of ours
				before, after, found := strings.Cut(left, step)
				if found {
					p.do(before)
					left = after
				}
			}
			after := func(step string) hook {
				return func(send sender) (*http.Response, error) {
					upTo(step)
					return send()
				}
			}
			r := w.intercepted(markBusy+pool.Namespace, 0, map[string]hook{http.MethodPost: after("L"), http.MethodPatch: after("S")})
			p.do(left)
			p.do("MQD")
			w.Must(w.Get(t.Context(), p.key, members[0]))
			if going := !members[0].DeletionTimestamp.IsZero(); going == (r.code == 0) {
				t.Errorf("the command said %q, and the machine is being deleted: %t", r.stdout+r.stderr, going)
			}
		})
	}
}

// pass is what the pool reconciler does to a machine that is one too many.
type pass struct {
	*world
	key    client.ObjectKey
	member *v1alpha1.VirtualMachine
	spared bool
}

func (p *pass) do(steps string) {
	p.Helper()
	for _, step := range steps {
		switch step {
		case 'M':
			p.member, p.spared = &v1alpha1.VirtualMachine{}, false
			p.Must(p.Get(p.Context(), p.key, p.member))
		case 'Q':
			leases := &coordinationv1.LeaseList{}
			p.Must(p.List(p.Context(), leases, client.InNamespace(p.key.Namespace), client.HasLabels{v1alpha1.LabelBusyMachine}))
			for i := range leases.Items {
				l := &leases.Items[i]
				p.spared = p.spared || busy.Of(l) == p.member.UID && busy.Until(l, time.Now()).After(time.Now())
			}
		case 'D':
			if p.spared {
				continue
			}
			err := p.Delete(p.Context(), p.member, client.Preconditions{UID: &p.member.UID, ResourceVersion: &p.member.ResourceVersion})
			if !apierrors.IsConflict(err) {
				p.Must(err)
			}
		}
	}
}
