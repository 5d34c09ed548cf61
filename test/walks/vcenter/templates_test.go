//go:build !race

package vcenter

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// images is a web server with OVAs, by their releases. It is known as localhost: a policy refuses addresses of loopback.
type images struct {
	*httptest.Server
	url, authority string
	mu             sync.Mutex
	all            map[string][]byte
	next           answer // what the next request is answered with
}

// answer answers a request for an OVA in place of the server.
type answer func(w http.ResponseWriter, r *http.Request, content []byte)

// badly has the next request be answered like that.
func (i *images) badly(a answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next = a
}

func (s *site) images() *images {
	i := &images{all: map[string][]byte{}}
	i.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		content, is := i.all[r.URL.Path]
		next := i.next
		i.next = nil
		i.mu.Unlock()
		switch {
		case !is:
			http.NotFound(w, r)
			return
		case next != nil:
			next(w, r, content)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	authority, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	s.Must(err)
	pair, err := tls.X509KeyPair(authority, key)
	s.Must(err)
	i.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	i.StartTLS()
	s.Cleanup(i.Close)
	i.authority = string(authority)
	i.url = strings.Replace(i.URL, "127.0.0.1", "localhost", 1)
	return i
}

// source is an OVA of that release, which the server has from now on.
func (i *images) source(release string) v1alpha1.VSphereTemplateSource {
	content := append(vcsim.OVA(), []byte(release)...) // beyond the end of the archive
	sum := sha256.Sum256(content)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all["/"+release+".ova"] = content
	return v1alpha1.VSphereTemplateSource{
		URL: i.url + "/" + release + ".ova", SHA256: hex.EncodeToString(sum[:]),
		CABundle: i.authority,
	}
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
	o := s.template(i.source("1"))
	o.Spec.KeepVersions = 1
	s.create(o)
	s.until("the first release is there", func() string { return s.versions(o) }, "Done ubuntu True TemplateReady:")
	s.releases(o, i.source("2"), "2")
	s.until("the next release is there", func() string { return s.versions(o) }, "Done ubuntu,ubuntu-1 True TemplateReady:")
	s.releases(o, i.source("2"), "1")
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
