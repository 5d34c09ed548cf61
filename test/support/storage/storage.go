// Package storage plays CDI and a CSI driver with snapshots where no Pods run: claims are bound, DataVolumes are imported, and snapshots are
// ready, without any data.
package storage

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// driver is the name of the CSI driver, and class that of its StorageClass, which is the default, and of its VolumeSnapshotClass.
const driver, class = "storage.example.com", "fast"

// interval is how often it looks for work.
const interval = 100 * time.Millisecond

// Storage plays CDI and the driver.
type Storage struct {
	client client.Client
	held   atomic.Bool
}

// New returns a Storage. The API server must serve [Definitions].
func New(config *rest.Config) (*Storage, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cdiv1.AddToScheme, snapshotv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return &Storage{client: c}, err
}

// Definitions returns the definitions of what CDI and the snapshot controller serve, with any fields.
func Definitions() []*apiextensionsv1.CustomResourceDefinition {
	const cdi, snapshots = "cdi.kubevirt.io", "snapshot.storage.k8s.io"
	return []*apiextensionsv1.CustomResourceDefinition{
		definition(cdi, "v1beta1", "DataVolume", apiextensionsv1.NamespaceScoped),
		definition(snapshots, "v1", "VolumeSnapshot", apiextensionsv1.NamespaceScoped),
		definition(snapshots, "v1", "VolumeSnapshotContent", apiextensionsv1.ClusterScoped),
		definition(snapshots, "v1", "VolumeSnapshotClass", apiextensionsv1.ClusterScoped),
	}
}

func definition(group, version, kind string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	plural := strings.TrimSuffix(singular+"s", "classs") + strings.Repeat("classes", strings.Count(singular, "class"))
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, played"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: singular},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}

// Install creates the classes.
func (s *Storage) Install(ctx context.Context) error {
	for _, o := range []client.Object{
		&storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: class, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			Provisioner: driver,
		},
		&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete},
	} {
		if err := s.client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating the class: %w", err)
		}
	}
	return nil
}

// Hold has imports wait halfway until release is called.
func (s *Storage) Hold() (release func()) {
	s.held.Store(true)
	return func() { s.held.Store(false) }
}

// Run works until the context ends. It tries again what fails.
func (s *Storage) Run(ctx context.Context, failed func(error)) {
	_ = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		for _, do := range []func(context.Context) error{s.bind, s.load, s.snapshot} {
			if err := do(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				failed(err)
			}
		}
		return false, nil
	})
}

// bind gives each claim of the class a volume.
func (s *Storage) bind(ctx context.Context) error {
	var claims corev1.PersistentVolumeClaimList
	if err := s.client.List(ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if of := claim.Spec.StorageClassName; of == nil || *of != class || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
			continue
		}
		err := s.client.Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: class, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
				Capacity:                      claim.Spec.Resources.Requests,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: driver, VolumeHandle: string(claim.UID),
				}},
			},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// load imports DataVolumes.
func (s *Storage) load(ctx context.Context) error {
	var volumes cdiv1.DataVolumeList
	if err := s.client.List(ctx, &volumes); err != nil {
		return err
	}
	for i := range volumes.Items {
		if v := &volumes.Items[i]; v.Status.Phase != cdiv1.Succeeded && v.DeletionTimestamp == nil && v.Spec.Storage != nil {
			if err := s.loadOne(ctx, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Storage) loadOne(ctx context.Context, volume *cdiv1.DataVolume) error {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volume.Namespace, Name: volume.Name, Labels: volume.Labels, Annotations: volume.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(volume, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(class),
			Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Storage.Resources.Requests},
		},
	}
	if err := s.client.Create(ctx, claim); apierrors.IsAlreadyExists(err) {
		err = s.client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	status := cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, Progress: "45.12%", ClaimName: claim.Name}
	if claim.Status.Phase == corev1.ClaimBound && !s.held.Load() {
		status.Phase, status.Progress = cdiv1.Succeeded, "100.0%"
	}
	if volume.Status.Phase == status.Phase {
		return nil
	}
	volume.Status = status
	return s.client.Status().Update(ctx, volume)
}

// snapshot has snapshots be ready.
func (s *Storage) snapshot(ctx context.Context) error {
	var snapshots snapshotv1.VolumeSnapshotList
	if err := s.client.List(ctx, &snapshots); err != nil {
		return err
	}
	for i := range snapshots.Items {
		snapshot := &snapshots.Items[i]
		if snapshot.Status != nil || snapshot.DeletionTimestamp != nil || snapshot.Spec.Source.PersistentVolumeClaimName == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: snapshot.Namespace, Name: *snapshot.Spec.Source.PersistentVolumeClaimName}
		if err := s.client.Get(ctx, key, claim); err != nil {
			return err
		}
		size := claim.Spec.Resources.Requests.Storage().DeepCopy()
		snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: &size}
		if err := s.client.Status().Update(ctx, snapshot); err != nil {
			return err
		}
	}
	return nil
}
