//go:build !race

package pods

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/definitions"
	"sallyport.dev/sallyport/test/support/env"
	testsite "sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// namespace has the images and the machines that boot from them.
const namespace = "farm"

const checksum = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// imageSite is a cluster with Sallyport, whose CDI and snapshot controller are played by the test.
type imageSite struct {
	step.T
	client.Client
	*testsite.Site
	samples map[string]sample
	touched int
}

func newImageSite(t *testing.T) *imageSite {
	s := &imageSite{T: step.T{T: t}, samples: map[string]sample{}}
	s.Site = testsite.Start(t, testsite.Options{
		// Of the controller manager, only the garbage collector: there are no volumes to bind claims to.
		Plane:  env.Options{ControllerManager: !testing.Short(), ControllerManagerFlags: map[string]string{"controllers": "garbage-collector-controller,serviceaccount-controller"}},
		Values: []string{"diskImages.enabled=true", "runtimes.pod.enabled=true"},
	})
	scheme := kruntime.NewScheme()
	s.Must(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), cdiv1.AddToScheme(scheme), snapshotv1.AddToScheme(scheme)))
	var err error
	s.Client, err = client.New(s.Plane.Config, client.Options{Scheme: scheme})
	s.Must(err)
	s.Must(s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	s.Must(s.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "csi.example.org",
	}))
	return s
}

func image(name string) *v1alpha1.VMDiskImage {
	return &v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VMDiskImageSpec{
		URL: "https://images.example.org/ubuntu.qcow2", Checksum: checksum, DiskSize: resource.MustParse("1Gi"),
	}}
}

// read reads an object, and reports whether it exists.
func (s *imageSite) read(o client.Object) bool {
	s.Helper()
	err := s.Get(s.Context(), client.ObjectKeyFromObject(o), o)
	s.Must(client.IgnoreNotFound(err))
	return err == nil
}

// shows waits until the image has a phase and its condition Ready a reason.
func (s *imageSite) shows(i *v1alpha1.VMDiskImage, phase v1alpha1.VMDiskImagePhase, reason v1alpha1.ConditionReason) {
	s.Helper()
	s.Until(fmt.Sprintf("VMDiskImage %s is %s, %s", i.Name, phase, reason), func() (string, bool) {
		s.read(i)
		ready := v1alpha1.ConditionReady.In(i.Status.Conditions)
		return fmt.Sprintf("%+v", i.Status), ready != nil && i.Status.Phase == phase && ready.Reason == string(reason)
	})
}

// touch has the image looked at, which by itself happens twice a minute while it waits for a kind.
func (s *imageSite) touch(i *v1alpha1.VMDiskImage) {
	s.Helper()
	s.touched++
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, s.touched)
	s.Must(s.Patch(s.Context(), i, client.RawPatch(types.MergePatchType, patch)))
}

// volume waits for the DataVolume of the image.
func (s *imageSite) volume(i *v1alpha1.VMDiskImage) *cdiv1.DataVolume {
	s.Helper()
	volume := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: fmt.Sprintf("vmdi-%s-1", i.UID)}}
	s.Eventually("there is a DataVolume of "+i.Name, func() bool { return s.read(volume) })
	return volume
}

// play does what CDI does when an import is complete: the claim of the DataVolume is bound.
func (s *imageSite) play(volume *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volume.Namespace, Name: volume.Name, Labels: volume.Labels, Annotations: volume.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(volume, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: volume.Spec.Storage.Resources.Requests},
		},
	}
	s.Must(s.Create(s.Context(), claim))
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: claim.Spec.Resources.Requests}
	s.Must(s.Status().Update(s.Context(), claim))
	// Nobody protects claims here but the admission plugin, and nobody would take that back.
	s.Must(s.Patch(s.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	volume.Status = cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded, Progress: "100.0%", ClaimName: claim.Name}
	s.Must(s.Status().Update(s.Context(), volume))
	return claim
}

func (s *imageSite) kubectl(args ...string) string {
	s.Helper()
	out, said, code := s.Plane.Kubectl(s.Context(), args...)
	if code != 0 {
		s.Fatalf("kubectl %s: %s%s", strings.Join(args, " "), out, said)
	}
	return out
}

// An image waits for CDI and for snapshots, is imported when they come, stays, and takes everything along when it is deleted.
func TestImages(t *testing.T) {
	t.Parallel()
	s := newImageSite(t)
	crd := definitions.DataVolumes(t)
	ubuntu := image("ubuntu")
	s.Step("what is refused", s.refusals)
	s.Step("without CDI", func(step.T) {
		s.Must(s.Create(t.Context(), ubuntu))
		s.shows(ubuntu, v1alpha1.VMDiskImagePending, v1alpha1.ReasonImportsNotServed)
		if !strings.Contains(fmt.Sprint(ubuntu.Finalizers), v1alpha1.VMDiskImageFinalizer) {
			t.Errorf("the finalizers are %v", ubuntu.Finalizers)
		}
	})
	s.Step("without snapshots", func(step.T) {
		s.Must(s.Plane.InstallCRDs(t.Context(), crd))
		s.touch(ubuntu)
		s.shows(ubuntu, v1alpha1.VMDiskImagePending, v1alpha1.ReasonSnapshotsNotServed)
	})
	var volume *cdiv1.DataVolume
	var claim *corev1.PersistentVolumeClaim
	s.Step("with both", func(step.T) {
		s.Must(s.Plane.InstallCRDs(t.Context(), definitions.Snapshots(t)...))
		s.touch(ubuntu)
		s.shows(ubuntu, v1alpha1.VMDiskImagePending, v1alpha1.ReasonSnapshotUnsupported)
		s.Must(s.Create(t.Context(), &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "snap"}, Driver: "csi.example.org", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		}))
		s.touch(ubuntu)
		volume = s.volume(ubuntu)
		if volume.Spec.Source.HTTP == nil || volume.Spec.Source.HTTP.Checksum != checksum {
			t.Errorf("the source is %+v", volume.Spec.Source)
		}
		volume.Status = cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, Progress: "45.12%"}
		s.Must(s.Status().Update(t.Context(), volume))
		s.shows(ubuntu, v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
		if out := s.kubectl("get", "vmdi", "ubuntu", "-n", namespace); !strings.Contains(out, "Importing   45.12%") {
			t.Errorf("kubectl get shows\n%s", out)
		}
		s.exports(`sallyport_disk_images{phase="Importing",reason="Importing"}`)
		claim = s.play(volume)
	})
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: volume.Name}}
	s.Step("a snapshot", func(step.T) {
		s.Eventually("there is a snapshot", func() bool { return s.read(snapshot) })
		snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("1Gi"))}
		s.Must(s.Status().Update(t.Context(), snapshot))
		s.shows(ubuntu, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		if out := s.kubectl("get", "vmdi", "ubuntu", "-n", namespace); !strings.Contains(out, "Ready") || !strings.Contains(out, "1Gi") {
			t.Errorf("kubectl get shows\n%s", out)
		}
		s.exports(`sallyport_disk_images_unreferenced_since_timestamp_seconds{policy="Retain"}`)
	})
	s.Step("another source", func(step.T) {
		s.read(ubuntu)
		ubuntu.Spec.URL = "https://images.example.org/debian.qcow2"
		if err := s.Update(t.Context(), ubuntu); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "create another VMDiskImage instead") {
			t.Errorf("the update ends with %v", err)
		}
	})
	s.Step("its data is kept", func(step.T) { s.guarded(snapshot, claim) })
	s.Step("deletion while a disk uses it", func(step.T) { s.deferred(ubuntu, snapshot, volume, claim) })
	s.Step("deletion", func(step.T) {
		s.kubectl("wait", "--for=delete", "vmdi/ubuntu", "-n", namespace, "--timeout=2m")
		for _, o := range []client.Object{snapshot, volume, claim} {
			if s.read(o) {
				t.Errorf("%T %s is still there", o, o.GetName())
			}
		}
	})
	s.Step("a snapshot that is lost", func(step.T) {
		debian := image("debian")
		s.Must(s.Create(t.Context(), debian))
		volume := s.volume(debian)
		s.play(volume)
		snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: volume.Name}}
		s.Eventually("there is a snapshot", func() bool { return s.read(snapshot) })
		snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)}
		s.Must(s.Status().Update(t.Context(), snapshot))
		s.shows(debian, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		s.Must(s.as("system:serviceaccount:cdi:cdi-sa").Delete(t.Context(), snapshot))
		s.shows(debian, v1alpha1.VMDiskImageLost, v1alpha1.ReasonImageLost)
		s.exports(`sallyport_disk_images{phase="Lost",reason="ImageLost"}`)
		s.kubectl("delete", "vmdi", "debian", "-n", namespace, "--timeout=3m")
	})
	s.Step("a machine that boots from an image", s.machines)
	s.Step("a CDI without checksums", func(step.T) {
		s.withoutChecksum(crd)
		old := image("old")
		s.Must(s.Create(t.Context(), old))
		s.shows(old, v1alpha1.VMDiskImageFailed, v1alpha1.ReasonChecksumNotSupported)
		s.exports(`sallyport_disk_images{phase="Failed",reason="ChecksumNotSupported"}`)
		s.Eventually("its DataVolume is gone", func() bool {
			var volumes cdiv1.DataVolumeList
			s.Must(s.List(t.Context(), &volumes, client.InNamespace(namespace)))
			return len(volumes.Items) == 0
		})
	})
	s.Step("alerts", s.alerts)
}

// as is a client of a user who may do everything that no policy denies.
func (s *imageSite) as(user string) client.Client {
	s.Helper()
	config := rest.CopyConfig(s.Plane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := client.New(config, client.Options{Scheme: s.Scheme()})
	s.Must(err)
	return c
}

// guarded checks that nobody but those who must can delete the objects of an image, or take their labels off.
func (s *imageSite) guarded(snapshot *snapshotv1.VolumeSnapshot, claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.kubectl("wait", "--for=condition=Ready", "regopolicies/images-children", "--timeout=2m")
	for _, o := range []client.Object{snapshot, claim} {
		s.Eventually(fmt.Sprintf("the deletion of %T is denied", o), func() bool {
			err := s.Delete(s.Context(), o, client.DryRunAll)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "[images-children/ImageDataNeeded]")
		})
		detached := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelDiskImage))
		if err := s.Patch(s.Context(), o.DeepCopyObject().(client.Object), detached, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "[images-children/ImageDataDetached]") {
			s.Errorf("%T: the label can be removed: %v", o, err)
		}
		s.Must(s.as("system:serviceaccount:cdi:cdi-sa").Delete(s.Context(), o, client.DryRunAll))
	}
	other := claim.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "other", Labels: claim.Labels}
	s.Must(s.Create(s.Context(), other))
	s.Must(s.Patch(s.Context(), other, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null,"finalizers":null}}`))))
	s.Must(s.Delete(s.Context(), other))
}

// deferred deletes an image that a disk uses: it is Terminating, with all its data, until the disk releases it.
func (s *imageSite) deferred(image *v1alpha1.VMDiskImage, data ...client.Object) {
	s.Helper()
	disk := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"},
		Spec: v1alpha1.VirtualDiskSpec{
			Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}},
			Source: &v1alpha1.VirtualDiskSource{Image: v1alpha1.VMDiskImageReference{Name: image.Name}},
		},
	}
	s.Must(s.Create(s.Context(), disk))
	s.Until("the disk counts", func() (string, bool) {
		s.read(image)
		refs := image.Status.References
		return fmt.Sprintf("%+v", image.Status), refs != nil && refs.Count == 1 && len(refs.Users) == 1 && refs.Users[0].Name == "data" && image.Status.UnreferencedSince == nil
	})
	s.Eventually("the disk is copied", func() bool { return s.read(disk) && disk.Status.DiskID != "" })
	s.kubectl("delete", "vmdi", image.Name, "-n", namespace, "--dry-run=server")
	_, said, code := s.Plane.Kubectl(s.Context(), "delete", "vmdi", image.Name, "-n", namespace, "--wait=false")
	if want := "is used by VirtualDisk data: it is Terminating until they are deleted"; code != 0 || !strings.Contains(said, want) {
		s.Errorf("kubectl delete says %q, not %q", said, want)
	}
	s.Until("the deletion is blocked", func() (string, bool) {
		s.read(image)
		blocked := v1alpha1.ConditionDeletionBlocked.In(image.Status.Conditions)
		return fmt.Sprintf("%+v", image.Status), image.Status.Phase == v1alpha1.VMDiskImageTerminating && blocked != nil &&
			blocked.Reason == string(v1alpha1.ReasonImageReferenced) && strings.Contains(blocked.Message, "VirtualDisk data")
	})
	s.exports(`sallyport_disk_images_terminating_since_timestamp_seconds{blocked="ImageReferenced"}`)
	for _, o := range data {
		if !s.read(o) || !o.GetDeletionTimestamp().IsZero() {
			s.Errorf("%T %s was deleted", o, o.GetName())
		}
	}
	s.Must(s.Delete(s.Context(), disk))
	s.gone(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: disk.Status.DiskID}})
}

// withoutChecksum has the API server drop checksums of DataVolumes, as with the definition of a CDI before 1.65.
func (s *imageSite) withoutChecksum(crd *apiextensionsv1.CustomResourceDefinition) {
	s.Helper()
	now := &apiextensionsv1.CustomResourceDefinition{}
	scheme := kruntime.NewScheme()
	s.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(s.Plane.Config, client.Options{Scheme: scheme})
	s.Must(err)
	s.Must(c.Get(s.Context(), types.NamespacedName{Name: crd.Name}, now))
	delete(now.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["source"].Properties["http"].Properties, "checksum")
	s.Must(c.Update(s.Context(), now))
	s.Eventually("checksums are dropped", func() bool {
		volume := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "https://images.example.org/", Checksum: checksum}},
		}}
		s.Must(s.Create(s.Context(), volume, client.DryRunAll))
		return volume.Spec.Source.HTTP.Checksum == ""
	})
}

// refusals are what the schema and images-sources refuse.
func (s *imageSite) refusals(step.T) {
	s.kubectl("create", "role", "images", "-n", namespace, "--verb=create", "--resource=vmdiskimages.sallyport.dev")
	s.kubectl("create", "rolebinding", "images", "-n", namespace, "--role=images", "--user=ann")
	config, err := s.Plane.UserConfig("ann")
	s.Must(err)
	ann, err := client.New(config, client.Options{Scheme: s.Scheme()})
	s.Must(err)
	refused := func(text string, change func(*v1alpha1.VMDiskImageSpec)) {
		s.Helper()
		i := image("refused")
		change(&i.Spec)
		if err := ann.Create(s.Context(), i, client.DryRunAll); err == nil || !strings.Contains(err.Error(), text) {
			s.Errorf("not %q: %v", text, err)
		}
	}
	refused("[images-sources/SourceAddressForbidden]", func(i *v1alpha1.VMDiskImageSpec) { i.URL = "http://169.254.169.254/latest/meta-data" })
	refused("[images-sources/SourceHasCredentials]", func(i *v1alpha1.VMDiskImageSpec) { i.URL = "https://ann:hunter2@images.example.org/" })
	refused("[images-sources/ChecksumAlgorithmNotAllowed]", func(i *v1alpha1.VMDiskImageSpec) { i.Checksum = "md5:" + strings.Repeat("0", 32) })
	secret := func(i *v1alpha1.VMDiskImageSpec) { i.SecretRef = &v1alpha1.VMDiskImageSecretReference{Name: "images"} }
	refused("[images-sources/SecretNotAllowed]", secret)
	refused("spec.checksum is only allowed with sourceType http", func(i *v1alpha1.VMDiskImageSpec) { i.SourceType = v1alpha1.VMDiskImageS3 })
	refused("because a tag can be moved", func(i *v1alpha1.VMDiskImageSpec) {
		i.SourceType, i.URL, i.Checksum = v1alpha1.VMDiskImageRegistry, "docker://registry.example.org/ubuntu:24.04", ""
	})
	refused("spec.diskSize must be greater than 0", func(i *v1alpha1.VMDiskImageSpec) { i.DiskSize = resource.MustParse("0") })
	s.kubectl("create", "role", "secret", "-n", namespace, "--verb=get", "--resource=secrets", "--resource-name=images")
	s.kubectl("create", "rolebinding", "secret", "-n", namespace, "--role=secret", "--user=ann")
	s.Eventually("ann may name the Secret", func() bool {
		i := image("admitted")
		secret(&i.Spec)
		return ann.Create(s.Context(), i, client.DryRunAll) == nil
	})
}
