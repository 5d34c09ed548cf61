//go:build !race

package vcenter

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// fromTemplate is a VirtualMachine that was not created yet, which is made from VSphereTemplate ubuntu.
func (s *site) fromTemplate(name string) *v1alpha1.VirtualMachine {
	vm := s.made(func(spec *v1alpha1.VirtualMachineSpec) {
		spec.Runtime.VSphere.Clone.Template = v1alpha1.VSphereCloneSource{TemplateRef: &v1alpha1.VSphereTemplateReference{Name: "ubuntu"}}
	})
	vm.Name = name
	return vm
}

// clonesImages has the folder of templates, and lets machines of the namespace be made from them.
func (s *site) clonesImages() {
	s.Helper()
	s.vcenter.AddFolder("/DC0/vm/images")
	server := &v1alpha1.VSphereServer{}
	server.Name = s.name
	update(s, server, func(server *v1alpha1.VSphereServer) {
		server.Spec.Tenants[0].Templates = append(server.Spec.Tenants[0].Templates, "/DC0/vm/images")
	})
	s.shows(server, connected)
}

// madeFrom waits until a machine is as wanted, and fails the test unless it was made from that release of VSphereTemplate ubuntu.
func (s *site) madeFrom(vm *v1alpha1.VirtualMachine, release string) {
	s.Helper()
	s.shows(vm, asWanted)
	if from := vm.Status.Template; from == nil || from.Name != "ubuntu" || from.Release != release {
		s.Errorf("%s was made from %+v, not from release %s", vm.Name, from, release)
	}
}

// denied waits until something is refused by that rule.
func (s *site) denied(rule string, do func() error) {
	s.Helper()
	s.until("it is refused by "+rule, func() string {
		err := do()
		if err == nil || strings.Contains(err.Error(), "["+rule+"]") {
			return fmt.Sprintf("refused: %t", err != nil)
		}
		return err.Error()
	}, "refused: true")
}

// A machine waits for the first release of its template, and is made from it. The next one is made from the release that replaced it. While
// one is still to be made the template stays.
func TestMachinesFromATemplate(t *testing.T) {
	t.Parallel()
	s := maker(t)
	i := s.images()
	s.clonesImages()
	s.denied("servers-tenancy/VSphereTemplateNotFound", func() error { return stack.Client.Create(t.Context(), s.fromTemplate("first")) })

	o := s.template(i.Add("1", vcsim.OVA()))
	o.Spec.Paused = true
	s.create(o)
	first := s.adopt(s.fromTemplate("first"))
	s.shows(first, fmt.Sprintf("False Provisioning the machine is being created: waiting for the first release of VSphereTemplate ubuntu in failure domain a: "+
		"for the cause, run `kubectl sallyport why svst ubuntu --namespace %s`", s.name))
	s.denied("deletion-references/TemplateReferenced", func() error { return stack.Client.Delete(t.Context(), o) })
	update(s, o, func(o *v1alpha1.VSphereTemplate) { o.Spec.Paused = false })
	s.madeFrom(first, "1")

	s.releases(o, i.Add("2", vcsim.OVA()), "2")
	s.until("the next release is there", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
		return o.Status.ReleaseIn("a")
	}, "2")
	second := s.adopt(s.fromTemplate("second"))
	s.madeFrom(second, "2")
	s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(first), first))
	s.madeFrom(first, "1")
	s.remove(o) // nobody needs it any more
	s.madeFrom(first, "1")
}
