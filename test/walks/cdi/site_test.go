//go:build cdi

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// The StorageClasses of the driver: the default one, which is the name of the VolumeSnapshotClass, too, one of block devices, one whose
// volumes are created when a Pod that uses them is scheduled, and one of which CDI knows no access mode.
const class, blockClass, lateClass, plainClass = "folder", "device", "late", "plain"

// trustedHost is the host that the administrator allows all credentials to be sent to.
const trustedHost = "trusted.test"

// site is a cluster with Sallyport, CDI and snapshots.
type site struct {
	step.T
	client.Client
	plane     *env.ControlPlane
	driver    *driver
	source    *source
	importers *importers
	folder    string // with the logs
	programs  map[string]string
	release   *install.Sallyport
	options   install.Options // of the release
	// controller starts cdi-controller.
	controller func() *env.Daemon
	running    *env.Daemon
}

// addition is a part of a cluster that only some tests have.
type addition struct {
	configure func(*site, *env.Options)
	install   func(*site)
	values    []string // of the chart
}

// newSite starts everything.
func newSite(t *testing.T, also ...addition) *site {
	ctrl.SetLogger(klog.NewKlogr())
	s := &site{T: step.T{T: t}, folder: t.TempDir()}
	ctx := context.WithoutCancel(t.Context())
	var err error
	s.programs, err = env.CDI(ctx, t.Logf, true)
	s.Must(err)
	crds, err := charts.CRDs()
	s.Must(err)
	objects, defined, err := env.Manifests(ctx, s.programs["cdi-manifests"])
	s.Must(err)
	crds = append(append(crds, s.snapshotCRDs()...), defined...)
	options := env.Options{CRDs: crds, ControllerManager: true}
	for _, a := range also {
		a.configure(s, &options)
	}
	s.plane, err = env.Start(ctx, options)
	s.Must(err)
	t.Cleanup(func() { s.Must(s.plane.Stop()) })
	scheme := kruntime.NewScheme()
	s.Must(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), cdiv1.AddToScheme(scheme), virtv1.AddToScheme(scheme), snapshotv1.AddToScheme(scheme)))
	s.Client, err = client.New(s.plane.Config, client.Options{Scheme: scheme})
	s.Must(err)
	s.storage()
	s.cdi(objects)
	values := []string{"diskImages.enabled=true", "runtimes.pod.enabled=true", "rbac.imageSecrets={*}", "diskImages.secretHosts={" + trustedHost + "}"}
	for _, a := range also {
		a.install(s)
		values = append(values, a.values...)
	}
	s.sallyport(values)
	s.source = newSource(t, s.programs["s3"])
	playing, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	s.importers = &importers{Client: s.Client, driver: s.driver, source: s.source}
	go s.importers.run(playing)
	go s.schedule(playing)
	return s
}

// log creates a file for what a program logs, the end of which is shown if the test fails.
func (s *site) log(name string) *os.File {
	file, err := os.Create(filepath.Join(s.folder, name+".log"))
	s.Must(err)
	s.Cleanup(func() {
		text, _ := os.ReadFile(file.Name())
		_ = file.Close()
		if s.Failed() {
			s.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-6000):])
		}
	})
	return file
}

// daemon runs one of the programs of CDI and CSI until the test ends.
func (s *site) daemon(name string, environment []string, args ...string) *env.Daemon {
	command := exec.Command(s.programs[name], args...)
	command.Env = append(os.Environ(), environment...)
	logs := s.log(name)
	command.Stdout, command.Stderr = logs, logs
	process, err := env.StartDaemon(command)
	s.Must(err)
	s.Cleanup(func() { _ = process.Kill() })
	return process
}

// snapshotCRDs returns the definitions that belong to the snapshot controller; it waits for those of groups, too.
func (s *site) snapshotCRDs() (crds []*apiextensionsv1.CustomResourceDefinition) {
	command := exec.CommandContext(s.Context(), "go", "mod", "download", "-json", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	command.Dir = filepath.Join(filepath.Dir(s.programs["snapshot-controller"]), "src")
	command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := command.Output()
	s.Must(err)
	module := struct{ Dir string }{}
	s.Must(json.Unmarshal(out, &module))
	files, err := filepath.Glob(filepath.Join(module.Dir, "config", "crd", "*snapshot.storage.k8s.io_*.yaml"))
	s.Must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		s.Must(err)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		s.Must(yaml.Unmarshal(text, crd))
		crds = append(crds, crd)
	}
	return crds
}

// storage starts the driver and the controllers of CSI.
func (s *site) storage() {
	var socket string
	s.driver, socket = newDriver(s.T.T)
	kubeconfig, err := s.plane.UserKubeconfig("csi", "system:masters")
	s.Must(err)
	reclaim := corev1.PersistentVolumeReclaimDelete
	late := storagev1.VolumeBindingWaitForFirstConsumer
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: blockClass}, Provisioner: driverName, ReclaimPolicy: &reclaim},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: plainClass}, Provisioner: driverName, ReclaimPolicy: &reclaim},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: lateClass}, Provisioner: driverName, ReclaimPolicy: &reclaim, VolumeBindingMode: &late},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}},
		&storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: class, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			Provisioner: driverName, ReclaimPolicy: &reclaim, AllowVolumeExpansion: new(true),
		},
		&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Driver: driverName, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete},
	} {
		s.Must(s.Create(s.Context(), o))
	}
	fast := []string{"--kubeconfig=" + kubeconfig, "--kube-api-qps=200", "--kube-api-burst=400", "--retry-interval-start=100ms", "--retry-interval-max=2s"}
	s.daemon("snapshot-controller", nil, fast...)
	s.daemon("csi-snapshotter", nil, append(fast, "--csi-address="+socket)...)
	s.daemon("csi-provisioner", nil, append(fast, "--csi-address="+socket, "--extra-create-metadata")...)
}

// cdi starts CDI, with its own roles.
func (s *site) cdi(objects []unstructured.Unstructured) {
	ctx := s.Context()
	address, err := s.plane.Service(ctx, "cdi", "cdi-api", 8443)
	s.Must(err)
	secret, webhooks := &corev1.Secret{}, []*unstructured.Unstructured{}
	for i := range objects {
		switch o := &objects[i]; o.GetKind() {
		case "CustomResourceDefinition":
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			webhooks = append(webhooks, o)
		default:
			s.Must(s.Create(ctx, o))
		}
	}
	file := func(name string, from map[string][]byte, key string) string {
		path := filepath.Join(s.folder, name)
		s.Must(os.WriteFile(path, from[key], 0o600))
		return path
	}
	pair := func(name string) (crt, key string) {
		s.Must(s.Get(ctx, client.ObjectKey{Namespace: "cdi", Name: name}, secret))
		return file(name+".crt", secret.Data, "tls.crt"), file(name+".key", secret.Data, "tls.key")
	}
	as := func(account string) string {
		kubeconfig, err := s.plane.ServiceAccountKubeconfig(ctx, "cdi", account)
		s.Must(err)
		return kubeconfig
	}
	crt, key := pair("cdi-apiserver-server-cert")
	s.daemon("cdi-apiserver", []string{"KUBECONFIG=" + as("cdi-apiserver"), "CDI_HOST=" + address, "CERT_FILE=" + crt, "KEY_FILE=" + key})
	s.Eventually("cdi-apiserver listens", func() bool {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(address, "8443"), time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	for _, o := range webhooks {
		s.Must(s.Create(ctx, o))
	}
	s.Eventually("there is a key of tokens", func() bool {
		return s.Get(ctx, client.ObjectKey{Namespace: "cdi", Name: "cdi-api-signing-key"}, secret) == nil
	})
	account := as("cdi-sa")
	environment := []string{
		"KUBECONFIG=" + account, "CDI_READY_FILE=" + filepath.Join(s.folder, "ready"),
		"CDI_TOKEN_PUBLIC_KEY=" + file("token.pub", secret.Data, "id_rsa.pub"), "CDI_TOKEN_PRIVATE_KEY=" + file("token", secret.Data, "id_rsa"),
		"IMPORTER_IMAGE=importer", "CLONER_IMAGE=cloner", "UPLOADSERVER_IMAGE=uploads", "OVIRT_POPULATOR_IMAGE=ovirt", "UPLOADPROXY_SERVICE=uploads",
	}
	for variable, name := range map[string]string{"UPLOAD_SERVER": "cdi-uploadserver-signer", "UPLOAD_CLIENT": "cdi-uploadserver-client-signer"} {
		crt, key := pair(name)
		environment = append(environment, variable+"_CERT_FILE="+crt, variable+"_KEY_FILE="+key)
	}
	cdi := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "metadata": map[string]any{"name": "cdi"}, "spec": map[string]any{}}}
	s.Must(s.Create(ctx, cdi))
	s.controller = func() *env.Daemon { return s.daemon("cdi-controller", environment, "--kubeconfig="+account) }
	s.running = s.controller()
	for name, volumes := range map[string]corev1.PersistentVolumeMode{
		class: corev1.PersistentVolumeFilesystem, lateClass: corev1.PersistentVolumeFilesystem, blockClass: corev1.PersistentVolumeBlock,
	} {
		profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Eventually("CDI knows the StorageClass "+name, func() bool { return s.read(profile) })
		s.Must(s.Patch(ctx, profile, client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"spec":{"claimPropertySets":[{"accessModes":["ReadWriteOnce"],"volumeMode":%q}]}}`, volumes))))
	}
}

// sallyport installs Sallyport.
func (s *site) sallyport(values []string) {
	ctx := context.WithoutCancel(s.Context())
	binary, err := install.Build(ctx, s.folder, "sallyport.dev/sallyport/cmd/sallyport")
	s.Must(err)
	s.options = install.Options{Values: values, Binary: binary, Logs: s.log("sallyport")}
	s.release, err = install.Start(ctx, s.plane, s.options)
	s.Must(err)
	s.Cleanup(func() { s.Must(s.release.Remove()) })
}

// node is where Pods are scheduled.
const node = "importers"

// schedule plays the scheduler for Pods whose claims wait for one: it names the node in the claims.
func (s *site) schedule(ctx context.Context) {
	for ctx.Err() == nil {
		var pods corev1.PodList
		_ = s.List(ctx, &pods)
		for _, pod := range pods.Items {
			for _, v := range pod.Spec.Volumes {
				claim := &corev1.PersistentVolumeClaim{}
				if v.PersistentVolumeClaim == nil || s.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, claim) != nil {
					continue
				}
				if of := claim.Spec.StorageClassName; of != nil && *of == lateClass && claim.Spec.VolumeName == "" && claim.Annotations[selectedNode] == "" {
					_ = s.Patch(ctx, claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, selectedNode, node)))
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// selectedNode is the annotation of the scheduler on a claim.
const selectedNode = "volume.kubernetes.io/selected-node"

// read reads an object, and reports whether it exists.
func (s *site) read(o client.Object) bool {
	s.Helper()
	err := s.Get(s.Context(), client.ObjectKeyFromObject(o), o)
	s.Must(client.IgnoreNotFound(err))
	return err == nil
}

// in is the site of a part of the test.
func (s *site) in(t *testing.T) *site {
	inner := *s
	inner.T = step.T{T: t}
	return &inner
}

func (s *site) namespace(name string) {
	s.Helper()
	s.Must(s.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (s *site) kubectl(args ...string) string {
	s.Helper()
	out, said, code := s.plane.Kubectl(s.Context(), args...)
	if code != 0 {
		s.Fatalf("kubectl %s: %s%s", strings.Join(args, " "), out, said)
	}
	return out
}

// image is the image of a namespace.
func image(namespace, name string) *v1alpha1.VMDiskImage {
	return &v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VMDiskImageSpec{
		URL: "http://images.test/" + namespace + "/disk.img", DiskSize: resource.MustParse("1Mi"),
		Import: v1alpha1.VMDiskImageImport{RetryLimit: new(int32)},
	}}
}

// shows waits until the image has a phase, and its condition Ready a reason.
func (s *site) shows(i *v1alpha1.VMDiskImage, phase v1alpha1.VMDiskImagePhase, reason v1alpha1.ConditionReason) {
	s.Helper()
	s.Until(fmt.Sprintf("VMDiskImage %s/%s is %s, %s", i.Namespace, i.Name, phase, reason), func() (string, bool) {
		s.read(i)
		ready := v1alpha1.ConditionReady.In(i.Status.Conditions)
		return fmt.Sprintf("%+v", i.Status), ready != nil && i.Status.Phase == phase && ready.Reason == string(reason)
	})
}

// message is that of the condition Ready.
func messageOf(i *v1alpha1.VMDiskImage) string {
	return v1alpha1.ConditionReady.In(i.Status.Conditions).Message
}

// claimed returns the data behind a claim.
func (s *site) claimed(namespace, name string) []byte {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	s.Must(s.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, claim))
	volume := &corev1.PersistentVolume{}
	s.Must(s.Get(s.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, volume))
	b, err := s.driver.read(volume.Spec.CSI.VolumeHandle)
	s.Must(err)
	return b
}

// disk creates a VirtualDisk from an image, and returns when it is there.
func (s *site) disk(namespace, name, of string) {
	s.Helper()
	s.diskIsReady(s.newDisk(namespace, name, of))
}

func (s *site) newDisk(namespace, name, of string) *v1alpha1.VirtualDisk {
	s.Helper()
	disk := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.VirtualDiskSpec{
			Size: resource.MustParse("2Mi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}},
			Source: &v1alpha1.VirtualDiskSource{Image: v1alpha1.VMDiskImageReference{Name: of}},
		},
	}
	s.Must(s.Create(s.Context(), disk))
	return disk
}

func (s *site) diskIsReady(disk *v1alpha1.VirtualDisk) {
	s.Helper()
	s.Until("VirtualDisk "+disk.Name+" is ready", func() (string, bool) {
		s.read(disk)
		ready := v1alpha1.ConditionReady.In(disk.Status.Conditions)
		return fmt.Sprintf("%+v", disk.Status), ready != nil && ready.Status == metav1.ConditionTrue
	})
}

// copied waits for a claim that is copied from a snapshot, and returns its data.
func (s *site) copied(namespace string) []byte {
	s.Helper()
	name := ""
	s.Eventually("a claim is copied from a snapshot", func() bool {
		for _, claim := range s.claims(namespace) {
			if from := claim.Spec.DataSource; from != nil && from.Kind == "VolumeSnapshot" && claim.Status.Phase == corev1.ClaimBound {
				name = claim.Name
			}
		}
		return name != ""
	})
	return s.claimed(namespace, name)
}

// claims lists the claims of a namespace.
func (s *site) claims(namespace string) []corev1.PersistentVolumeClaim {
	s.Helper()
	var all corev1.PersistentVolumeClaimList
	s.Must(s.List(s.Context(), &all, client.InNamespace(namespace)))
	return all.Items
}
