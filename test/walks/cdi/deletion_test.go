//go:build cdi

package cdi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// deletion is a way to delete an image, and what comes of it.
type deletion struct {
	name string
	// used is whether a disk was copied from the image.
	used bool
	// importing is whether the import still runs.
	importing bool
	do        func(s *site, i *v1alpha1.VMDiskImage)
	// becomes is what the image is then: gone, terminating while a disk uses it, or untouched.
	becomes string
}

const gone, terminating, untouched = "gone", "terminating", "untouched"

func deletions() []deletion {
	remove := func(args ...string) func(*site, *v1alpha1.VMDiskImage) {
		return func(s *site, i *v1alpha1.VMDiskImage) {
			s.kubectl(append([]string{"delete", "-n", i.Namespace, "--wait=false"}, args...)...)
		}
	}
	one := func(args ...string) func(*site, *v1alpha1.VMDiskImage) {
		return remove(append(args, "vmdi", "ubuntu")...)
	}
	return []deletion{
		{name: "all", do: remove("vmdi", "--all"), becomes: gone},
		{name: "all-used", used: true, do: remove("vmdi", "--all"), becomes: terminating},
		{name: "importing", importing: true, do: one(), becomes: gone},
		{name: "collection", do: collected, becomes: gone},
		{name: "collection-used", used: true, do: collected, becomes: terminating},
		{name: "dry-run", do: one("--dry-run=server"), becomes: untouched},
		{name: "dry-run-used", used: true, do: one("--dry-run=server"), becomes: untouched},
		{name: "foreground", do: one("--cascade=foreground"), becomes: gone},
		{name: "foreground-used", used: true, do: one("--cascade=foreground"), becomes: terminating},
		{name: "orphan", do: one("--cascade=orphan"), becomes: gone},
		{name: "orphan-used", used: true, do: one("--cascade=orphan"), becomes: terminating},
		{name: "force", used: true, do: one("--force", "--grace-period=0"), becomes: terminating},
		{name: "replace-force", do: func(s *site, i *v1alpha1.VMDiskImage) { s.replaced(i) }, becomes: untouched},
		{name: "replace-force-used", used: true, do: func(s *site, i *v1alpha1.VMDiskImage) { s.notReplaced(i) }, becomes: terminating},
		{name: "namespace", do: func(s *site, i *v1alpha1.VMDiskImage) { s.kubectl("delete", "ns", i.Namespace, "--timeout=3m") }, becomes: gone},
		{name: "namespace-used", used: true, do: func(s *site, i *v1alpha1.VMDiskImage) { s.kubectl("delete", "ns", i.Namespace, "--timeout=3m") }, becomes: gone},
		{name: "namespace-importing", importing: true, do: func(s *site, i *v1alpha1.VMDiskImage) { s.kubectl("delete", "ns", i.Namespace, "--timeout=3m") }, becomes: gone},
		{name: "namespace-protected", do: func(s *site, i *v1alpha1.VMDiskImage) {
			s.kubectl("label", "vmdi", "ubuntu", "-n", i.Namespace, v1alpha1.LabelDeletionProtection+"="+v1alpha1.DeletionProtectionEnabled)
			s.denied("deletion-cascade", "delete", "ns", i.Namespace)
			s.denied("deletion-protected", "delete", "vmdi", "--all", "-n", i.Namespace)
		}, becomes: untouched},
		{name: "namespace-held", used: true, do: func(s *site, i *v1alpha1.VMDiskImage) { s.held(i) }, becomes: gone},
		{name: "definition", do: func(s *site, _ *v1alpha1.VMDiskImage) {
			s.denied("deletion-definitions", "delete", "crd", "vmdiskimages.sallyport.dev")
		}, becomes: untouched},
		{name: "owner", do: func(s *site, i *v1alpha1.VMDiskImage) { s.owned(i) }, becomes: gone},
		{name: "children", do: func(s *site, i *v1alpha1.VMDiskImage) {
			for _, kind := range []string{"datavolumes.cdi.kubevirt.io", "volumesnapshots.snapshot.storage.k8s.io", "persistentvolumeclaims"} {
				s.denied("images-children", "delete", kind, "--all", "-n", i.Namespace)
			}
		}, becomes: untouched},
		{name: "foreign-finalizer", do: func(s *site, i *v1alpha1.VMDiskImage) { s.foreign(i) }, becomes: gone},
	}
}

// deletions deletes images in many ways. Nothing is wedged, and no data is deleted that a disk uses.
func (s *site) deletions() {
	for _, d := range deletions() {
		s.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s.in(t).deleted(d)
		})
	}
}

func (s *site) deleted(d deletion) {
	ns := "deletion-" + d.name
	s.namespace(ns)
	i := image(ns, "ubuntu")
	if d.importing {
		s.source.mu.Lock()
		s.source.modes[ns] = stall
		s.source.mu.Unlock()
	}
	s.Must(s.Create(s.Context(), i))
	if d.importing {
		s.shows(i, v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
	} else {
		s.shows(i, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	}
	if d.used {
		s.disk(ns, "data", "ubuntu")
		s.Eventually("the disk counts", func() bool { s.read(i); return i.Status.References.Count == 1 })
	}
	began := time.Now()
	d.do(s, i)
	present := &v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ubuntu"}}
	switch d.becomes {
	case untouched:
		s.shows(present, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		if !present.DeletionTimestamp.IsZero() || !bytes.Equal(s.claimed(ns, present.Status.Claim.Name), data(ns)) {
			s.Errorf("the image is not as it was: %+v", present)
		}
	case terminating:
		s.terminates(present)
	}
	s.Logf("%-24s %s after %.0f s", d.name, d.becomes, time.Since(began).Seconds())
	s.ended(ns, d)
}

// refused deletes an image while the policy denies the deletion of images that are used: nothing happens to it, and it can be deleted when
// the disk is gone.
func (s *site) refused() {
	const ns = "refused"
	policy := func(images string) {
		s.kubectl("patch", "regopolicies", "deletion-references", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"parameters":{"images":%q}}}`, images))
	}
	policy("Deny")
	s.namespace(ns)
	i := image(ns, "ubuntu")
	s.Must(s.Create(s.Context(), i))
	s.shows(i, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	s.disk(ns, "data", "ubuntu")
	s.Until("the policy denies", func() (string, bool) {
		_, said, code := s.plane.Kubectl(s.Context(), "delete", "vmdi", "ubuntu", "-n", ns, "--dry-run=server")
		return said, code != 0 && strings.Contains(said, "[deletion-references/ImageReferenced]")
	})
	for _, args := range [][]string{{"vmdi", "ubuntu"}, {"vmdi", "--all"}, {"vmdi", "ubuntu", "--force", "--grace-period=0"}, {"vmdi", "ubuntu", "--cascade=foreground"}} {
		s.denied("deletion-references", append([]string{"delete", "-n", ns}, args...)...)
	}
	s.shows(i, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	if !bytes.Equal(s.claimed(ns, i.Status.Claim.Name), data(ns)) {
		s.Error("the data of the image is not there any more")
	}
	s.kubectl("delete", "virtualdisks", "data", "-n", ns, "--timeout=2m")
	s.kubectl("delete", "vmdi", "ubuntu", "-n", ns, "--timeout=2m")
	s.empty(ns)
	policy("Defer")
}

// terminates checks that an image which is used is kept, and says by whom.
func (s *site) terminates(i *v1alpha1.VMDiskImage) {
	s.shows(i, v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
	s.Until("the image says who uses it", func() (string, bool) {
		s.read(i)
		blocked := v1alpha1.ConditionDeletionBlocked.In(i.Status.Conditions)
		return fmt.Sprintf("%+v", i.Status), blocked != nil && blocked.Reason == string(v1alpha1.ReasonImageReferenced) && strings.Contains(blocked.Message, "VirtualDisk data")
	})
	if !bytes.Equal(s.claimed(i.Namespace, i.Status.Claim.Name), data(i.Namespace)) || !bytes.Equal(s.copied(i.Namespace), data(i.Namespace)) {
		s.Error("the data of the image or of the disk is not there any more")
	}
}

// ended has everything go that is left, and checks that nothing is.
func (s *site) ended(namespace string, d deletion) {
	i := &v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ubuntu"}}
	if d.becomes != gone {
		if d.used {
			s.kubectl("delete", "virtualdisks", "--all", "-n", namespace, "--timeout=2m")
		}
		if d.becomes == untouched {
			s.read(i)
			if i.Labels[v1alpha1.LabelDeletionProtection] != "" {
				override := &v1alpha1.Override{Policy: "deletion-protected", UID: i.UID, By: "root", Until: time.Now().Add(time.Minute), Reason: "the test is over"}
				s.kubectl("annotate", "vmdi", "ubuntu", "-n", namespace, v1alpha1.AnnotationOverride+"="+override.String(), "--as=root", "--as-group=system:masters")
			}
			s.kubectl("delete", "vmdi", "ubuntu", "-n", namespace, "--wait=false", "--as=root", "--as-group=system:masters")
		}
	}
	began := time.Now()
	s.Eventually("the image is gone", func() bool { return !s.read(i) })
	s.empty(namespace)
	s.Logf("%-24s empty after %.0f s", d.name, time.Since(began).Seconds())
}

// denied runs kubectl, which a policy must deny.
func (s *site) denied(policy string, args ...string) {
	s.Helper()
	_, said, code := s.plane.Kubectl(s.Context(), args...)
	if code == 0 || !strings.Contains(said, "["+policy+"/") {
		s.Errorf("kubectl %s ends with %d: %s", strings.Join(args, " "), code, said)
	}
}

// collected deletes all images of a namespace in one request.
func collected(s *site, i *v1alpha1.VMDiskImage) {
	s.Must(s.DeleteAllOf(s.Context(), &v1alpha1.VMDiskImage{}, client.InNamespace(i.Namespace)))
}

// manifest writes the image as its user has it, and returns the path.
func (s *site) manifest(i *v1alpha1.VMDiskImage) string {
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "VMDiskImage", "metadata": map[string]any{"namespace": i.Namespace, "name": i.Name}, "spec": i.Spec,
	})
	s.Must(err)
	file := filepath.Join(s.TempDir(), "image.yaml")
	s.Must(os.WriteFile(file, text, 0o600))
	return file
}

// replaced deletes the image and creates it again.
func (s *site) replaced(i *v1alpha1.VMDiskImage) {
	s.kubectl("replace", "--force", "--timeout=2m", "-f", s.manifest(i))
	now := &v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name}}
	if s.read(now); now.UID == i.UID {
		s.Error("the image was not replaced")
	}
}

// notReplaced tries the same with an image that is used.
func (s *site) notReplaced(i *v1alpha1.VMDiskImage) {
	if _, said, code := s.plane.Kubectl(s.Context(), "replace", "--force", "--timeout=3s", "-f", s.manifest(i)); code == 0 || !strings.Contains(said, "context deadline exceeded") {
		s.Errorf("kubectl replace ends with %d: %s", code, said)
	}
	if _, said, code := s.plane.Kubectl(s.Context(), "create", "-f", s.manifest(i)); code == 0 || !strings.Contains(said, "already exists") && !strings.Contains(said, "object is being deleted") {
		s.Errorf("kubectl create ends with %d: %s", code, said)
	}
}

// held deletes a namespace in which something else remains: the image and its data go all the same, and no new one comes.
func (s *site) held(i *v1alpha1.VMDiskImage) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "held", Finalizers: []string{"test.sallyport.dev/held"}}}
	s.Must(s.Create(s.Context(), config))
	s.kubectl("delete", "ns", i.Namespace, "--wait=false")
	if err := s.Create(s.Context(), image(i.Namespace, "late")); !apierrors.IsForbidden(err) {
		s.Errorf("creating an image in a namespace that is being deleted ends with %v", err)
	}
	s.Eventually("the image is gone", func() bool { return !s.read(i) })
	s.empty(i.Namespace)
	s.Must(s.Patch(s.Context(), config, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	s.Eventually("the namespace is gone", func() bool {
		return !s.read(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.Namespace}})
	})
}

// owned gives the image an owner, and deletes that in the foreground: the garbage collector deletes the image.
func (s *site) owned(i *v1alpha1.VMDiskImage) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "owner"}}
	s.Must(s.Create(s.Context(), config))
	s.Must(s.Patch(s.Context(), i, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q,"blockOwnerDeletion":true}]}}`, config.UID))))
	s.kubectl("delete", "configmap", "owner", "-n", i.Namespace, "--cascade=foreground", "--timeout=2m")
}

// foreign deletes an image whose snapshot has a finalizer of another controller. The image says so, and removes it not.
func (s *site) foreign(i *v1alpha1.VMDiskImage) {
	const finalizer = "test.sallyport.dev/backup"
	s.kubectl("patch", "volumesnapshots.snapshot.storage.k8s.io", i.Status.Snapshot.Name, "-n", i.Namespace, "--type=json",
		"-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"`+finalizer+`"}]`)
	s.kubectl("delete", "vmdi", "ubuntu", "-n", i.Namespace, "--wait=false")
	s.Until("the image says what it waits for", func() (string, bool) {
		s.read(i)
		blocked := v1alpha1.ConditionDeletionBlocked.In(i.Status.Conditions)
		return fmt.Sprintf("%+v", i.Status), blocked != nil && blocked.Reason == string(v1alpha1.ReasonChildrenRemain) && strings.Contains(blocked.Message, finalizer)
	})
	s.kubectl("patch", "volumesnapshots.snapshot.storage.k8s.io", i.Status.Snapshot.Name, "-n", i.Namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}
