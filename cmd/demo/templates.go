package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"strings"

	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// The content library, its image, and the folder of the templates that are created from it.
const library, golden, images = "images", "golden", inventory + "images"

// image is a release of the image: the files of its item, of which the last one has the sums of the others. The simulator keeps disks as
// they are that are not called .vmdk.
func image(release string) []vcsim.File {
	descriptor := strings.ReplaceAll(vcsim.Descriptor("nat"), "disk.vmdk", "disk.VMDK") + "<!-- release " + release + " -->"
	files := []vcsim.File{{Name: golden + ".ovf", Content: descriptor}, {Name: "disk.VMDK", Content: vcsim.Disk}}
	var sums strings.Builder
	for _, f := range files {
		fmt.Fprintf(&sums, "SHA256(%s)= %x\n", f.Name, sha256.Sum256([]byte(f.Content)))
	}
	return append(files, vcsim.File{Name: golden + ".mf", Content: sums.String()})
}

func sourceOf(release string) string {
	files := image(release)
	manifest := sha256.Sum256([]byte(files[len(files)-1].Content))
	return fmt.Sprintf(`{"libraryItem":{"library":%q,"name":%q},"sha256":"%x"}`, library, golden+"-"+release, manifest)
}

// fillLibrary uploads two releases of the image.
func (s *stage) fillLibrary(ctx context.Context) error {
	s.vcenter.AddFolder(images)
	into, err := s.vcenter.AddLibrary(ctx, library)
	if err != nil {
		return err
	}
	for _, release := range []string{"1", "2"} {
		if _, err := into.Add(ctx, golden+"-"+release, "ovf", image(release)...); err != nil {
			return err
		}
	}
	return nil
}

func goldenIn(datastore string) string {
	return fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VSphereTemplate
metadata: {name: %[1]s}
spec:
  serverRef: {name: vc-1}
  name: %[1]s
  release: "1"
  source: %[2]s
  keepVersions: 1
  failureDomains:
  - {name: a, folder: %[3]s, resourcePool: /DC0/host/DC0_C0, datastore: /DC0/datastore/%[4]s, network: /DC0/network/DC0_DVPG0}
`, golden, sourceOf("1"), images, datastore)
}

func (s *show) replaceTemplate() {
	s.chapter("Replace a template atomically",
		"The content library images of the vCenter has two releases of an image. A datastore that team-a has no access to is denied:")
	s.denied("create -f -", goldenIn("gold"), "PlaceNotAllowed", "/DC0/datastore/LocalDS_0")
	s.create(goldenIn("LocalDS_0"), "created")
	s.kubectl("wait svst/golden --for=condition=Ready --timeout=2m")
	s.vCenterKeeps(golden)
	s.tell("The next release is imported under a temporary name. It gets the name of the template when the import is complete:")
	s.kubectl(fmt.Sprintf(`patch svst golden --type=merge --patch={"spec":{"release":"2","source":%s}}`, sourceOf("2")))
	s.kubectl("wait svst/golden --for=jsonpath={.status.failureDomains[0].release}=2 --timeout=2m")
	s.kubectl("sallyport why svst golden", "2")
	s.vCenterKeeps(golden, golden+"-1")
	s.tell("Release 2 has a problem. A rollback to the retained release takes two renames:")
	s.kubectl(`patch svst golden --type=merge --patch={"spec":{"release":"1"}}`)
	s.kubectl("wait svst/golden --for=jsonpath={.status.failureDomains[0].release}=1 --timeout=2m")
	s.kubectl("get svst -o wide", golden, "TemplateReady")
	s.kubectl("delete svst golden --timeout=2m")
	s.vCenterKeeps()
}

// vCenterKeeps waits until the folder in the vCenter has these templates, and prints them.
func (s *show) vCenterKeeps(names ...string) {
	var is []string
	s.until(fmt.Sprintf("vCenter has %v in %s", names, images), func() bool {
		is = nil
		for _, at := range s.vcenter.Machines() {
			if path.Dir(at) == images {
				is = append(is, path.Base(at))
			}
		}
		return fmt.Sprint(is) == fmt.Sprint(names)
	})
	s.note("vCenter says: %s has %s", images, cmp.Or(strings.Join(is, ", "), "nothing"))
}
