//go:build !race

package vcenter

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// images starts a web server with OVAs.
func (s *site) images() *vcsim.Images {
	i, err := vcsim.ServeImages()
	s.Must(err)
	s.Cleanup(i.Close)
	return i
}

// template is a VSphereTemplate of release 1 that was not created yet.
func (s *site) template(source v1alpha1.VSphereTemplateSource) *v1alpha1.VSphereTemplate {
	return &v1alpha1.VSphereTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "ubuntu"}, Spec: v1alpha1.VSphereTemplateSpec{
		ServerRef: v1alpha1.VSphereServerReference{Name: s.name}, Name: "ubuntu", Release: "1", Source: source,
		FailureDomains: []v1alpha1.VSphereFailureDomain{{
			Name: "a", Folder: "/DC0/vm/images", ResourcePool: "/DC0/host/DC0_C0/Resources", Datastore: "/DC0/datastore/LocalDS_0", Network: "/DC0/network/VM Network",
		}},
	}}
}

// releases changes what is wanted.
func (s *site) releases(o *v1alpha1.VSphereTemplate, source v1alpha1.VSphereTemplateSource, release string) {
	s.Helper()
	s.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := &v1alpha1.VSphereTemplate{}
		if err := stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), now); err != nil {
			return err
		}
		now.Spec.Source, now.Spec.Release = source, release
		return stack.Client.Update(s.Context(), now)
	}))
}

// versions is what is told of the failure domain.
func (s *site) versions(t *v1alpha1.VSphereTemplate) string {
	now := &v1alpha1.VSphereTemplate{}
	if err := stack.Client.Get(s.Context(), client.ObjectKeyFromObject(t), now); err != nil {
		return err.Error()
	}
	if len(now.Status.FailureDomains) == 0 {
		return "nothing"
	}
	d := now.Status.FailureDomains[0]
	c := v1alpha1.ConditionReady.In(now.Status.Conditions)
	var names []string
	for _, v := range d.Versions {
		names = append(names, v.Name)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s: %s", d.Step, strings.Join(names, ","), c.Status, c.Reason, c.Message))
}

// From nothing to a template, to its next release, back to the one that was kept, and to nothing again.
func TestTemplateReplaced(t *testing.T) {
	t.Parallel()
	s := maker(t)
	i := s.images()
	s.vcenter.AddFolder("/DC0/vm/images")
	o := s.template(i.Add("1", vcsim.OVA()))
	o.Spec.KeepVersions = 1
	s.create(o)
	s.until("the first release is there", func() string { return s.versions(o) }, "Done ubuntu True TemplateReady:")
	s.releases(o, i.Add("2", vcsim.OVA()), "2")
	s.until("the next release is there", func() string { return s.versions(o) }, "Done ubuntu,ubuntu-1 True TemplateReady:")
	s.releases(o, i.Add("2", vcsim.OVA()), "1")
	s.until("the first release is back", func() string { return s.versions(o) }, "Done ubuntu-2,ubuntu True TemplateReady:")

	s.Must(stack.Client.Delete(t.Context(), o))
	s.until("it is gone", func() string {
		return fmt.Sprint(apierrors.IsNotFound(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), &v1alpha1.VSphereTemplate{})))
	}, "true")
	for _, path := range s.vcenter.Machines() {
		if strings.HasPrefix(path, "/DC0/vm/images/") {
			t.Errorf("%s is left", path)
		}
	}
}
