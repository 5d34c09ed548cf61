//go:build !race

package vcenter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// A template is made from an item of a content library that was taken apart, once the namespace may use the library.
func TestTemplateFromALibrary(t *testing.T) {
	t.Parallel()
	s := maker(t)
	s.vcenter.AddFolder("/DC0/vm/images")
	golden, err := s.vcenter.AddLibrary(t.Context(), "golden")
	s.Must(err)
	// The simulator keeps something else of what ends in .vmdk.
	files := []vcsim.File{{Name: "u.ovf", Content: strings.ReplaceAll(vcsim.Descriptor("nat"), "disk.vmdk", "disk.VMDK")}, {Name: "disk.VMDK", Content: vcsim.Disk}}
	manifest := ""
	for _, f := range files {
		manifest += fmt.Sprintf("SHA256(%s)= %x\n", f.Name, sha256.Sum256([]byte(f.Content)))
	}
	_, err = golden.Add(t.Context(), "ubuntu", "ovf", append(files, vcsim.File{Name: "u.mf", Content: manifest})...)
	s.Must(err)

	sum := sha256.Sum256([]byte(manifest))
	o := s.template(v1alpha1.VSphereTemplateSource{
		LibraryItem: &v1alpha1.VSphereLibraryItem{Library: "golden", Name: "ubuntu"}, SHA256: hex.EncodeToString(sum[:]),
	})
	s.until("it is refused", func() string {
		return stack.Client.Create(s.Context(), o.DeepCopyObject().(client.Object)).Error()
	}, fmt.Sprintf(`admission webhook "validate.sallyport.dev" denied the request: [templates-tenancy/PlaceNotAllowed] `+
		"spec.source.libraryItem.library: namespace %s may not use golden on VSphereServer %s; allowed: none", s.name, s.name))
	server := &v1alpha1.VSphereServer{}
	s.Must(stack.Client.Get(s.Context(), client.ObjectKey{Name: s.name}, server))
	update(s, server, func(server *v1alpha1.VSphereServer) { server.Spec.Tenants[0].Libraries = []string{"golden"} })
	s.until("it is admitted", func() string { return fmt.Sprint(stack.Client.Create(s.Context(), o)) }, "<nil>")
	s.until("the release is there", func() string { return s.versions(o) }, "Done ubuntu True TemplateReady:")
	open, err := s.vcenter.OpenDownloads(t.Context())
	s.Must(err)
	if open != 0 {
		t.Errorf("%d downloads are open", open)
	}
}
