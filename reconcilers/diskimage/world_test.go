package diskimage

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/mortal"
)

const (
	namespace = "farm"
	driver    = "csi.example.org"
	sum       = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

var imageKey = types.NamespacedName{Namespace: namespace, Name: "ubuntu"}

// world is an API server, and a process that reconciles an image.
type world struct {
	mortal.Process
	client.WithWatch
	*testing.T
	now      time.Time
	events   *events.FakeRecorder
	disabled bool
	readOnly bool
	metrics  *Metrics
	// secretHosts are those of the administrator.
	secretHosts []string
	// unserved are kinds that the API server does not have, and refused what it refuses: VERB KIND.
	unserved map[string]bool
	refused  map[string]error
	// prunes says that the definition of DataVolumes has no checksum.
	prunes bool
	// stale are the disks that the cache has, if it is not current.
	stale *v1alpha1.VirtualDiskList
	// emptyPages are pages without objects that precede the first object of a live list.
	emptyPages int
	// created are the kinds and names of what was created, and writes counts the statuses that were written.
	created []string
	writes  int
}

func newWorld(t *testing.T) *world {
	scheme := kruntime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), cdiv1.AddToScheme(scheme), snapshotv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{
		T: t, now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), events: events.NewFakeRecorder(1000),
		unserved: map[string]bool{}, refused: map[string]error{},
	}
	kind := func(o kruntime.Object) string {
		gvk, err := w.GroupVersionKindFor(o)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(gvk.Kind, "List")
	}
	gate := func(verb string, o kruntime.Object) error {
		if w.unserved[kind(o)] {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind(o)}}
		}
		return w.refused[verb+" "+kind(o)]
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	inner := apiserver.New(fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.VMDiskImage{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithIndex(&cdiv1.DataVolume{}, metav1.ObjectNameField, byName).
		WithIndex(&corev1.PersistentVolumeClaim{}, metav1.ObjectNameField, byName).
		WithIndex(&snapshotv1.VolumeSnapshot{}, metav1.ObjectNameField, byName).
		WithIndex(&v1alpha1.VirtualDisk{}, v1alpha1.FieldUsedDiskImage, usedImage).Build())
	w.WithWatch = interceptor.NewClient(inner, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			options := (&client.ListOptions{}).ApplyOptions(opts)
			if pages, _ := strconv.Atoi(options.Continue); options.Limit > 0 && pages < w.emptyPages {
				o.SetContinue(strconv.Itoa(pages + 1))
				return gate("list", o)
			}
			return errors.Join(gate("list", o), c.List(ctx, o, opts...))
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, whole := o.(*corev1.Secret); whole {
				t.Error("the data of a Secret was read")
			}
			return errors.Join(w.refused["get "+kind(o)], c.Get(ctx, key, o, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := gate("create", o); err != nil {
				return err
			}
			if volume, is := o.(*cdiv1.DataVolume); is && w.prunes {
				volume.Spec.Source.HTTP.Checksum = ""
			}
			err := c.Create(ctx, o, opts...)
			if err == nil {
				w.created = append(w.created, kind(o)+" "+o.GetName())
			}
			return err
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := gate("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			w.writes++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
	w.make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{defaultClass: "true"}}, Provisioner: driver})
	w.make(&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "snap"}, Driver: driver})
	w.Begin()
	return w
}

// newImage is a world with an image.
func newImage(t *testing.T, change func(*v1alpha1.VMDiskImage)) *world {
	w := newWorld(t)
	image := imageOfTests()
	if change != nil {
		change(image)
	}
	w.make(image)
	w.created = nil
	return w
}

// disk makes a disk that uses the image, in a namespace.
func (w *world) disk(namespace, name string, change func(*v1alpha1.VirtualDisk)) *v1alpha1.VirtualDisk {
	w.Helper()
	d := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Status.Image = &v1alpha1.UsedDiskImage{Namespace: imageKey.Namespace, Name: imageKey.Name, UID: w.image().UID}
	if change != nil {
		change(d)
	}
	w.make(d)
	return d
}

func imageOfTests() *v1alpha1.VMDiskImage {
	return &v1alpha1.VMDiskImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: imageKey.Namespace, Name: imageKey.Name},
		Spec: v1alpha1.VMDiskImageSpec{
			URL: "https://images.example.org/ubuntu.qcow2", SourceType: v1alpha1.VMDiskImageHTTP, Checksum: sum, DiskSize: resource.MustParse("20Gi"),
		},
	}
}

func (w *world) make(o client.Object) {
	w.Helper()
	w.must(w.Create(w.Context(), o))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// image reads the image, nil if there is none.
func (w *world) image() *v1alpha1.VMDiskImage {
	w.Helper()
	image := &v1alpha1.VMDiskImage{}
	err := w.Get(w.Context(), imageKey, image)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return image
}

// pass has a process reconcile once. If it dies of that, another one begins.
func (w *world) pass() (ctrl.Result, error) { return w.passBy(&w.Process) }

func (w *world) passBy(p *mortal.Process) (ctrl.Result, error) {
	c := p.Client(w.WithWatch)
	cached := interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			disks, is := o.(*v1alpha1.VirtualDiskList)
			if !is || w.stale == nil {
				return c.List(ctx, o, opts...)
			}
			image := w.image()
			for _, d := range w.stale.Items {
				if image != nil && slices.Contains(usedImage(&d), string(image.UID)) {
					disks.Items = append(disks.Items, d)
				}
			}
			return nil
		},
	})
	r := &Reconciler{Client: cached, Live: c, Events: w.events, Now: func() time.Time { return w.now }, Disabled: w.disabled, Metrics: w.metrics, SecretHosts: w.secretHosts}
	if w.readOnly {
		r.Halt = runtime.ReadOnly
	}
	result, err := r.Reconcile(w.Context(), ctrl.Request{NamespacedName: imageKey})
	if errors.Is(err, mortal.ErrDied) {
		p.Begin()
	}
	return result, err
}

// settle passes until a pass asks to be called later only.
func (w *world) settle() {
	w.Helper()
	var err error
	for range 30 {
		var result ctrl.Result
		if result, err = w.pass(); err == nil && (result.RequeueAfter == 0 || result.RequeueAfter > time.Second) {
			return
		}
	}
	w.Fatalf("it does not settle: %v, %v", err, w.image())
}

// later lets time pass, and settles.
func (w *world) later(d time.Duration) {
	w.Helper()
	w.now = w.now.Add(d)
	w.settle()
}

func (w *world) volumes() []cdiv1.DataVolume {
	var list cdiv1.DataVolumeList
	w.must(w.List(w.Context(), &list))
	return list.Items
}

func (w *world) claims() []corev1.PersistentVolumeClaim {
	var list corev1.PersistentVolumeClaimList
	w.must(w.List(w.Context(), &list))
	return list.Items
}

func (w *world) snapshots() []snapshotv1.VolumeSnapshot {
	var list snapshotv1.VolumeSnapshotList
	w.must(w.List(w.Context(), &list))
	return list.Items
}

// names lists what there is, for comparisons.
func (w *world) names() string {
	var all []string
	for _, o := range w.volumes() {
		all = append(all, "DataVolume "+o.Name)
	}
	for _, o := range w.claims() {
		all = append(all, "claim "+o.Name)
	}
	for _, o := range w.snapshots() {
		all = append(all, "snapshot "+o.Name)
	}
	return strings.Join(all, ", ")
}

// cdi plays CDI: it makes the claim, and writes the status of the only DataVolume.
func (w *world) cdi(status cdiv1.DataVolumeStatus) {
	w.Helper()
	volumes := w.volumes()
	if len(volumes) != 1 {
		w.Fatalf("there are %d DataVolumes: %s", len(volumes), w.names())
	}
	volume := &volumes[0]
	if len(w.claims()) == 0 && status.Phase != "" {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: volume.Namespace, Name: volume.Name, Labels: volume.Labels, Annotations: volume.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(volume, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("21Gi")}},
		}
		w.make(claim)
	}
	volume.Status = status
	w.must(w.Update(w.Context(), volume))
}

// succeed has the import succeed, and settles.
func (w *world) succeed() {
	w.Helper()
	w.settle()
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded, Progress: "100.0%"})
	w.settle()
}

// shoot has the snapshot get a status, and settles.
func (w *world) shoot(status snapshotv1.VolumeSnapshotStatus) {
	w.Helper()
	all := w.snapshots()
	if len(all) != 1 {
		w.Fatalf("there are %d snapshots: %s", len(all), w.names())
	}
	all[0].Status = &status
	w.must(w.Update(w.Context(), &all[0]))
	w.settle()
}

var usableSnapshot = snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("20Gi"))}

// ready is a world with an image that is ready.
func ready(t *testing.T) *world {
	w := newImage(t, nil)
	w.succeed()
	w.shoot(usableSnapshot)
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	return w
}

// shows compares the phase and the reason of the condition Ready.
func (w *world) shows(phase v1alpha1.VMDiskImagePhase, reason v1alpha1.ConditionReason) {
	w.Helper()
	image := w.image()
	is := v1alpha1.ConditionReady.In(image.Status.Conditions)
	if is == nil || image.Status.Phase != phase || is.Reason != string(reason) || is.ObservedGeneration != image.Generation {
		w.Fatalf("phase %s, condition %+v, want %s and %s", image.Status.Phase, is, phase, reason)
	}
}

// says checks that the message of the condition Ready has a text.
func (w *world) says(text string) {
	w.Helper()
	if message := v1alpha1.ConditionReady.In(w.image().Status.Conditions).Message; !strings.Contains(message, text) {
		w.Errorf("the message %q does not contain %q", message, text)
	}
}

// told returns the events so far.
func (w *world) told() (all []string) {
	for len(w.events.Events) > 0 {
		all = append(all, <-w.events.Events)
	}
	return all
}

// garbage collects what CDI's DataVolumes owned.
func (w *world) garbage() {
	w.Helper()
	volumes := w.volumes()
	for _, claim := range w.claims() {
		owner := metav1.GetControllerOf(&claim)
		if owner != nil && !slices.ContainsFunc(volumes, func(v cdiv1.DataVolume) bool { return v.UID == owner.UID }) {
			w.must(w.Delete(w.Context(), &claim))
		}
	}
}
