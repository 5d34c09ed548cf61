//go:build !race

package vcenter

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

func (s *site) goodLogin() map[string]string {
	return map[string]string{"username": s.user, "password": s.password}
}

// A vCenter where nothing listens, then one that never answers, then one that is there, and one that goes away.
func TestServerAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := newDoor(t, s.vcenter.URL())
	s.login(s.goodLogin())
	s.machine("web")
	server := s.declare(func(spec *v1alpha1.VSphereServerSpec) { spec.URL = d.url() })
	at := func(said string) string { return strings.Replace(said, " ", " spec.url: ", 1) }
	refuses := fmt.Sprintf("RuntimeUnavailable the host of vCenter %s refuses connections", s.name)
	s.warns(server, "False", at(refuses))
	// Of a vCenter that was not tried yet a machine says only that, for the same reason, so that its next event would add nothing.
	vm := s.adopt(s.vm("web"))
	s.warns(vm, "Unknown", refuses)

	d.open(t, true)
	silent := fmt.Sprintf("RuntimeUnavailable vCenter %s did not answer in time", s.name)
	s.warns(server, "False", at(silent))
	s.shows(vm, "Unknown "+silent)

	d.open(t, false)
	s.shows(server, connected)
	s.tells(server, "Normal Connected connected to vCenter "+server.Status.Version)
	s.shows(vm, asWanted)

	d.shut()
	s.shows(vm, "Unknown "+refuses)
	d.open(t, false)
	s.shows(vm, asWanted)
	s.remove(vm)
}

// A wrong password is tried once, whoever needs a session, and the right one as soon as it is there.
func TestServerLoginRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	wrong := s.password + "-mistyped"
	secrets.add(wrong)
	s.login(map[string]string{"username": s.user, "password": wrong})
	s.machine("web")
	server := s.declare()
	refused := fmt.Sprintf("vCenter %s refused the login: the user or the password is wrong, or the account is locked", s.name)
	s.warns(server, "False", "LoginRefused spec.credentialsSecretRef: "+refused)
	vm := s.adopt(s.vm("web"))
	s.warns(vm, "False", "PermissionDenied "+refused)
	s.retried(vm)
	if allowed, refused := s.vcenter.Logins(); allowed != 0 || refused != 1 {
		t.Errorf("vCenter has allowed %d logins and refused %d", allowed, refused)
	}

	s.login(s.goodLogin())
	s.shows(server, connected)
	s.shows(vm, asWanted)
}

// A certificate that is not the one to expect gets no password.
func TestServerCertificate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other, _, err := cert.GenerateSelfSignedCertKey("elsewhere", nil, nil)
	s.Must(err)
	s.login(s.goodLogin())
	s.machine("web")
	server := s.declare(func(spec *v1alpha1.VSphereServerSpec) { spec.Trust.CABundle = string(other) })
	trusting := func(trust v1alpha1.VSphereTrust) {
		update(s, server, func(server *v1alpha1.VSphereServer) { server.Spec.Trust = trust })
	}
	unsigned := fmt.Sprintf("the certificate of vCenter %s is not signed by an authority of its CA bundle", s.name)
	s.warns(server, "False", "CertificateNotTrusted spec.trust.caBundle: "+unsigned)
	vm := s.adopt(s.vm("web"))
	s.warns(vm, "Unknown", "RuntimeUnavailable "+unsigned)

	trusting(v1alpha1.VSphereTrust{CABundle: "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----"})
	s.warns(server, "False", "TrustInvalid spec.trust.caBundle: it contains no readable PEM certificate")

	flipped := map[bool]string{true: "11", false: "00"}[strings.HasPrefix(s.vcenter.Thumbprint(), "00")]
	trusting(v1alpha1.VSphereTrust{Thumbprint: flipped + s.vcenter.Thumbprint()[2:]})
	another := fmt.Sprintf("the certificate of vCenter %s does not match the configured thumbprint", s.name)
	s.warns(server, "False", "CertificateNotTrusted spec.trust.thumbprint: "+another)
	s.shows(vm, "Unknown RuntimeUnavailable "+another)
	if allowed, refused := s.vcenter.Logins(); allowed+refused != 0 {
		t.Errorf("there were %d logins, and %d that were refused", allowed, refused)
	}

	trusting(v1alpha1.VSphereTrust{Thumbprint: s.vcenter.Thumbprint()})
	s.shows(server, connected)
	s.shows(vm, asWanted)
	trusting(v1alpha1.VSphereTrust{CABundle: string(s.vcenter.CABundle())})
	s.shows(server, connected)
	s.shows(vm, asWanted)
}

// The Secret may come late, in parts, and go.
func TestServerSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.machine("web")
	server := s.declare()
	vm := s.adopt(s.vm("web"))
	none := fmt.Sprintf("SecretNotFound spec.credentialsSecretRef: Secret sallyport-system/%s-login does not exist", s.name)
	away := fmt.Sprintf("RuntimeUnavailable VSphereServer %s does not exist, or is not connected yet: see its condition Ready", s.name)
	s.warns(server, "False", none)
	s.warns(vm, "Unknown", away)
	s.login(map[string]string{"username": s.user})
	lacks := "SecretIncomplete spec.credentialsSecretRef: Secret sallyport-system/%s-login has no value for key %s"
	s.warns(server, "False", fmt.Sprintf(lacks, s.name, "password"))
	s.login(s.goodLogin())
	s.shows(server, connected)
	s.shows(vm, asWanted)

	s.Must(stack.Client.Delete(s.Context(), s.secret()))
	s.shows(server, "False "+none)
	s.shows(vm, "Unknown "+away)
	s.until("the session has ended", func() string { return fmt.Sprint(s.vcenter.Sessions()) }, "0")
	s.login(s.goodLogin())
	s.shows(server, connected)
	s.shows(vm, asWanted)
}

// A VSphereServer that there is not cannot be named; one that goes is missed until it is there again.
func TestServerGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.machine("web")
	s.login(s.goodLogin())
	s.refuses(s.vm("web"), "VSphereServerNotFound", fmt.Sprintf("spec.runtime.vsphere.serverRef.name: VSphereServer %s does not exist. "+
		"Use an existing VSphereServer. To list them, run `kubectl get vsphereservers`.", s.name))
	server := s.declare()
	s.shows(server, connected)
	vm := s.adopt(s.vm("web"))
	s.shows(vm, asWanted)

	s.remove(server)
	s.warns(vm, "Unknown", fmt.Sprintf("RuntimeUnavailable VSphereServer %s does not exist, or is not connected yet: see its condition Ready", s.name))
	s.shows(s.declare(), connected)
	s.shows(vm, asWanted)
}

// A VirtualMachine stays with its machine when the URL leads to another vCenter, which gets no credentials until an administrator accepts it, and
// does not find another one there.
func TestServerMoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := s.machine("web")
	other := s.start("5f8a6a8e-0000-4000-8000-000000000002")
	s.ready()
	server, vm := &v1alpha1.VSphereServer{}, s.adopt(s.vm("web"))
	server.Name = s.name
	s.shows(vm, asWanted)
	s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(server), server))
	first := server.Status.InstanceUUID
	to := func(url, ca string) {
		update(s, server, func(server *v1alpha1.VSphereServer) { server.Spec.URL, server.Spec.Trust.CABundle = url, ca })
	}
	to(other.URL(), string(other.CABundle()))
	s.shows(server, "False OtherVCenter spec.url: it leads to another vCenter than before, so nothing is sent to it: its instance UUID is "+
		"5f8a6a8e-0000-4000-8000-000000000002, and was "+first+"; to use it: kubectl annotate --overwrite vsphereservers "+
		s.name+" sallyport.dev/accept-vcenter=5f8a6a8e-0000-4000-8000-000000000002")
	s.shows(vm, fmt.Sprintf("Unknown RuntimeUnavailable vCenter %s is another one than before", s.name))
	if got := other.Sessions(); got != 0 {
		t.Errorf("the other has %d sessions", got)
	}
	update(s, server, func(server *v1alpha1.VSphereServer) {
		server.Annotations = map[string]string{v1alpha1.AnnotationAcceptVCenter: "5f8a6a8e-0000-4000-8000-000000000002"}
	})
	s.warns(vm, "False", fmt.Sprintf("InstanceLost the runtime no longer has instance %s: restore it there, or delete and recreate VirtualMachine web", s.vcenter.State(path).InstanceUUID))
	s.until("the session with the first has ended", func() string { return fmt.Sprint(s.vcenter.Sessions(), other.Sessions()) }, "0 1")
	to(s.vcenter.URL(), string(s.vcenter.CABundle()))
	update(s, server, func(server *v1alpha1.VSphereServer) {
		server.Annotations[v1alpha1.AnnotationAcceptVCenter] = first
	})
	s.shows(vm, asWanted)
	s.until("the session with the other has ended", func() string { return fmt.Sprint(s.vcenter.Sessions(), other.Sessions()) }, "1 0")
}

// A VirtualDisk that is deleted while the URL leads to another vCenter stays until it is deleted where it is.
func TestDiskOfAServerThatMoved(t *testing.T) {
	t.Parallel()
	s := maker(t)
	disk := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "data"}, Spec: v1alpha1.VirtualDiskSpec{
		Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{
			ServerRef: v1alpha1.VSphereServerReference{Name: s.name}, Datastore: "/DC0/datastore/LocalDS_0",
		}},
	}}
	s.patiently(func() error { return stack.Client.Create(s.Context(), disk) })
	s.until("the disk exists", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(disk), disk))
		return string(disk.Status.Phase)
	}, string(v1alpha1.VirtualDiskAvailable))
	file := s.vcenter.FCD(disk.Status.DiskID).File
	server, other := &v1alpha1.VSphereServer{}, s.start("5f8a6a8e-0000-4000-8000-000000000003")
	server.Name = s.name
	to := func(v *vcsim.VCenter) {
		update(s, server, func(server *v1alpha1.VSphereServer) {
			server.Spec.URL, server.Spec.Trust.CABundle = v.URL(), string(v.CABundle())
		})
	}
	to(other)
	elsewhere := fmt.Sprintf("Unknown RuntimeUnavailable vCenter %s is another one than before", s.name)
	s.until("the server is another one", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(server), server))
		return v1alpha1.ConditionReady.In(server.Status.Conditions).Reason
	}, string(v1alpha1.ReasonOtherVCenter))
	s.Must(stack.Client.Delete(s.Context(), disk))
	s.shows(disk, elsewhere)
	if !s.vcenter.HasFile(file) {
		t.Errorf("%s was deleted", file)
	}
	to(s.vcenter)
	s.until("the disk is gone", func() string {
		err := stack.Client.Get(s.Context(), client.ObjectKeyFromObject(disk), disk)
		return fmt.Sprint(apierrors.IsNotFound(err), s.vcenter.HasFile(file))
	}, "true false")
}
