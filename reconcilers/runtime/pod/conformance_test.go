package pod_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/pod"
	"sallyport.dev/sallyport/reconcilers/snapshot"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/double/conformance"
	"sallyport.dev/sallyport/test/support/nodeagent"
)

func TestConformance(t *testing.T) { conformance.Run(t, newHarness) }

// fault is what befalls the next request of a client about a Pod.
type fault struct {
	mu   sync.Mutex
	next func(ctx context.Context, request func() error) error
}

func (f *fault) set(next func(context.Context, func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = next
}

// befall makes the request, with what befalls it. A context that has ended ends requests, as it does those of a real client.
func (f *fault) befall(ctx context.Context, request func() error) error {
	f.mu.Lock()
	next := f.next
	f.next = nil
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if next != nil {
		return next(ctx, request)
	}
	return request()
}

// faulty gives a client of the runtime, whose writes, or whose reads, meet with faults.
func faulty(api client.WithWatch, reads, writes *fault, created func()) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return reads.befall(ctx, func() error { return c.Get(ctx, key, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			defer created()
			o.SetUID(uuid.NewUUID()) // as an API server does
			return writes.befall(ctx, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return writes.befall(ctx, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return writes.befall(ctx, func() error { return c.Delete(ctx, o, opts...) })
		},
	})
}

// holds are what an agent calls the tasks of machines.
var holds = map[runtime.TaskKind]agent.Request{
	runtime.TaskCreate: nodeagent.Creating, runtime.TaskPowerOn: agent.PowerOn, runtime.TaskPowerOff: agent.PowerOff,
	runtime.TaskRelocate: agent.Hibernate, runtime.TaskDelete: nodeagent.Deleting,
}

var errReplyLost = errors.New("the reply was lost")

func newHarness(t *testing.T) conformance.Harness {
	api := newAPI()
	var reads, writes fault
	nodes := nodeagent.New(apiserver.ForNodes(api), "node-1", "node-2")
	snapshots := newSnapshots(t, api)
	nodes.Transport = snapshots.transport
	of := func(verb runtime.Verb) *fault {
		if verb == runtime.VerbObserve {
			return &reads
		}
		return &writes
	}
	step := func() {
		if err := nodes.Step(t.Context()); err != nil {
			t.Error(err)
		}
	}
	connect := func(*testing.T) runtime.Runtime {
		c := faulty(api, &reads, &writes, step) // a node takes the Pod at once
		return &pod.Runtime{Client: c, Live: c, Snapshots: snapshots.Store}
	}
	return conformance.Harness{
		Runtime: connect(t), Makes: true, Reconnect: connect,
		Machine: func(_ *testing.T, name string) runtime.Machine { return machine(name) },
		Disk:    func(_ *testing.T, name string) runtime.Disk { return disk(name) },
		Source:  func(t *testing.T) runtime.DiskSource { return source(t, api) },
		Advance: func(runtime.Machine) { step() },
		Instances: func(t *testing.T, m runtime.Machine) (n int) {
			var pods corev1.PodList
			if err := api.List(t.Context(), &pods, client.MatchingLabels{agent.LabelMachine: string(m.UID)}); err != nil {
				t.Fatal(err)
			}
			return len(pods.Items)
		},
		IgnoreShutdown: func(_ *testing.T, m runtime.Machine) { nodes.SetGuest(m.UID, nodeagent.Guest{Ignores: true}) },
		HeedShutdown: func(_ *testing.T, m runtime.Machine) {
			step() // the guest is asked
			nodes.SetGuest(m.UID, nodeagent.Guest{})
		},
		RemoveTools: func(_ *testing.T, m runtime.Machine) {
			nodes.SetGuest(m.UID, nodeagent.Guest{NoTools: true})
			step()
		},
		Pause: func(_ *testing.T, m runtime.Machine) { nodes.Pause(m.UID) },
		Hold: func(_ *testing.T, m runtime.Machine, kind runtime.TaskKind) func() {
			request, is := holds[kind]
			if !is {
				t.Fatalf("a task of kind %s cannot be held", kind)
			}
			return nodes.Hold(m.UID, request)
		},
		OtherNode: func(t *testing.T, m runtime.Machine) string {
			var pods corev1.PodList
			if err := api.List(t.Context(), &pods, client.MatchingLabels{agent.LabelMachine: string(m.UID)}); err != nil || len(pods.Items) != 1 {
				t.Fatalf("%d Pods, %v", len(pods.Items), err)
			}
			return map[string]string{"node-1": "node-2", "node-2": "node-1"}[pods.Items[0].Spec.NodeName]
		},
		Registry: &conformance.Registry{Digest: snapshots.digest, Replace: snapshots.replace, Lose: snapshots.lose},
		Foreign:  func(t *testing.T) (runtime.Machine, func() error) { return foreign(t, api) },
		LoseReply: func(_ *testing.T, _ runtime.Machine, verb runtime.Verb) {
			of(verb).set(func(_ context.Context, request func() error) error { return errors.Join(request(), errReplyLost) })
		},
		Stall: func(_ *testing.T, _ runtime.Machine, verb runtime.Verb) <-chan struct{} {
			reached := make(chan struct{})
			reads.set(func(ctx context.Context, _ func() error) error {
				close(reached)
				<-ctx.Done()
				return ctx.Err()
			})
			return reached
		},
	}
}

// snapshots are those in a registry.
type snapshots struct {
	*snapshot.Store
	transport http.RoundTripper
}

func newSnapshots(t *testing.T, api client.Reader) *snapshots {
	t.Helper()
	registry := nodeagent.StartRegistry()
	t.Cleanup(registry.Close)
	s := &snapshots{transport: registry.Transport()}
	var err error
	if s.Store, err = snapshot.New(registry.Repository(), api, s.transport); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *snapshots) tag(t *testing.T, m runtime.Machine) name.Reference {
	t.Helper()
	tag, err := name.ParseReference(s.Ref(m))
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

func (s *snapshots) digest(t *testing.T, m runtime.Machine) string {
	t.Helper()
	is, err := remote.Head(s.tag(t, m), remote.WithTransport(s.transport))
	if answer, absent := errors.AsType[*transport.Error](err); absent && answer.StatusCode == http.StatusNotFound {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return is.Digest.String()
}

func (s *snapshots) replace(t *testing.T, m runtime.Machine) {
	t.Helper()
	if err := remote.Write(s.tag(t, m), empty.Image, remote.WithTransport(s.transport)); err != nil {
		t.Fatal(err)
	}
}

func (s *snapshots) lose(t *testing.T, m runtime.Machine) {
	t.Helper()
	if err := s.Discard(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func machine(name string) runtime.Machine {
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, UID: types.UID("uid-" + name),
		Spec: &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
	}
}

func disk(name string) runtime.Disk {
	return runtime.Disk{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, UID: types.UID("uid-" + name),
		Spec: &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}}},
	}
}

// foreign gives a machine in whose place there is a Pod of somebody else.
func foreign(t *testing.T, api client.Client) (runtime.Machine, func() error) {
	m := machine("foreign")
	theirs := &corev1.Pod{}
	theirs.Namespace, theirs.Name = m.Namespace, pod.NameOf(m)
	if err := api.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	return m, func() error {
		now := &corev1.Pod{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(theirs), now); err != nil {
			return err
		}
		if diff := cmp.Diff(theirs, now); diff != "" {
			return fmt.Errorf("(-before +after):\n%s", diff)
		}
		return nil
	}
}
