package main

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// The image, and the folder of the templates that are created from it.
const golden, images = "golden", inventory + "images"

// serveImages starts the web server with the releases of the image.
func (s *stage) serveImages() (err error) {
	s.vcenter.AddFolder(images)
	if s.ovas, err = vcsim.ServeImages(); err != nil {
		return err
	}
	s.onClose(func() error { s.ovas.Close(); return nil })
	return nil
}

func (s *show) goldenIn(datastore string) string {
	source := s.ovas.Add("1", vcsim.OVA())
	return fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VSphereTemplate
metadata: {name: %[1]s}
spec:
  serverRef: {name: vc-1}
  name: %[1]s
  release: "1"
  source: {url: %[2]q, sha256: %[5]q, caBundle: %[6]q}
  keepVersions: 1
  failureDomains:
  - {name: a, folder: %[3]s, resourcePool: /DC0/host/DC0_C0, datastore: /DC0/datastore/%[4]s, network: /DC0/network/DC0_DVPG0}
`, golden, source.URL, images, datastore, source.SHA256, source.CABundle)
}

func (s *show) replaceTemplate() {
	s.chapter("Replace a template atomically",
		"A web server has two releases of an image. A datastore that team-a has no access to is denied:")
	s.denied("create -f -", s.goldenIn("gold"), "PlaceNotAllowed", "/DC0/datastore/LocalDS_0")
	s.create(s.goldenIn("LocalDS_0"), "created")
	s.kubectl("wait svst/golden --for=condition=Ready --timeout=2m")
	s.vCenterKeeps(golden)
	s.tell("The next release is imported under a temporary name. It gets the name of the template when the import is complete:")
	next := s.ovas.Add("2", vcsim.OVA())
	s.kubectl(fmt.Sprintf(`patch svst golden --type=merge --patch={"spec":{"release":"2","source":{"url":%q,"sha256":%q}}}`, next.URL, next.SHA256))
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
