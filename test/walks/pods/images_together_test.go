//go:build !race

package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// pair is a chart of a machine and its disk.
var pair = map[string]string{
	"Chart.yaml": "{apiVersion: v2, name: pair, version: 1.0.0}",
	"templates/disk.yaml": `apiVersion: sallyport.dev/v1alpha1
kind: VirtualDisk
metadata: {name: data}
spec: {size: 1Gi, runtime: {pod: {}}}
`,
	"templates/machine.yaml": `apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: with-data}
spec: {runtime: {pod: {}}, blockDeviceRefs: [{kind: VirtualDisk, name: data}]}
`,
}

// together deletes a machine and its disk with one command. Helm always deletes the VirtualDisk first, because it sorts kinds that it does not
// know by name. That fails only if the policy denies the deletion of used disks, and the disk remains.
func (s *imageSite) together() {
	s.Helper()
	chart := s.TempDir()
	s.Must(os.Mkdir(filepath.Join(chart, "templates"), 0o700))
	for file, text := range pair {
		s.Must(os.WriteFile(filepath.Join(chart, file), []byte(text), 0o600))
	}
	disk, machine := filepath.Join(chart, "templates", "disk.yaml"), filepath.Join(chart, "templates", "machine.yaml")
	kubectl := func(args ...string) (said string, code int) {
		out, said, code := s.Plane.Kubectl(s.Context(), append([]string{"-n", namespace}, args...)...)
		return out + said, code
	}
	helm := func(args ...string) (said string, code int) {
		out, said, code := s.Plane.Helm(s.Context(), append([]string{"-n", namespace}, args...)...)
		return out + said, code
	}
	ways := map[string]struct{ create, remove func() (string, int) }{
		"Helm": {
			func() (string, int) { return helm("install", "pair", chart) }, func() (string, int) { return helm("uninstall", "pair") },
		},
		"the disk first": {
			func() (string, int) { return kubectl("create", "-f", disk, "-f", machine) },
			func() (string, int) { return kubectl("delete", "--wait=false", "-f", disk, "-f", machine) },
		},
		"the machine first": {
			func() (string, int) { return kubectl("create", "-f", disk, "-f", machine) },
			func() (string, int) { return kubectl("delete", "--wait=false", "-f", machine, "-f", disk) },
		},
	}
	for _, disks := range []string{"Deny", "Defer"} { // the second is the default
		s.kubectl("patch", "regopolicies", "deletion-references", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"parameters":{"disks":%q}}}`, disks))
		for name, way := range ways {
			if said, code := way.create(); code != 0 {
				s.Fatalf("%s: %s", name, said)
			}
			d := s.usedDisk()
			s.Until("the policy is "+disks, func() (string, bool) {
				said, code := kubectl("delete", "svd", d.Name, "--dry-run=server")
				return said, (code != 0 && strings.Contains(said, "[deletion-references/DiskInUse]")) == (disks == "Deny")
			})
			fails := disks == "Deny" && name != "the machine first"
			if said, code := way.remove(); (code != 0) != fails {
				s.Errorf("%s, %s: ends with %d: %s", disks, name, code, said)
			}
			s.gone(&v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "with-data"}})
			if fails {
				if !s.read(d) || !d.DeletionTimestamp.IsZero() {
					s.Errorf("%s: the disk does not remain", name)
				}
				s.Until("the disk can be deleted", func() (string, bool) {
					said, code := way.remove() // again, as a user would
					return said, code == 0 || !s.read(d) || !d.DeletionTimestamp.IsZero()
				})
			}
			s.gone(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Status.DiskID}})
			s.gone(d)
		}
	}
}

// usedDisk waits until the machine uses the disk.
func (s *imageSite) usedDisk() *v1alpha1.VirtualDisk {
	s.Helper()
	d := &v1alpha1.VirtualDisk{}
	s.Until("the machine uses the disk", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: "data"}, d))
		return fmt.Sprintf("%+v", d.Status), d.Status.Phase == v1alpha1.VirtualDiskInUse
	})
	return d
}
