//go:build !race

package vcenter

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/pages"
	testsite "sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// firstDay is a reader of docs/first-day.md, with a release whose replicas run as the Deployment says.
type firstDay struct {
	step.T
	*testsite.Site
	vcenter *vcsim.VCenter
	walk    pages.Walk
}

// A reader types what docs/first-day.md and the tutorial of docs/policies.md show, from the first refusal to the uninstall, and reads what the pages show.
func TestFirstDay(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	d := &firstDay{T: step.T{T: t}, Site: testsite.Start(t, testsite.Options{
		Values: []string{"decisionRecords.all=false"}, Pods: true, Flags: []string{"--poll-interval", "200ms", "--shutdown-delay", "3s"},
	})}
	d.startVCenter()
	d.prepare()
	d.walk.Run(t, d.page("first-day.md", ""))
}

func (d *firstDay) startVCenter() {
	var err error
	d.vcenter, err = vcsim.Start(vcsim.Options{Step: 10 * time.Millisecond})
	d.Must(err)
	d.Cleanup(d.vcenter.Close)
	d.vcenter.SetUser(url.UserPassword("sallyport@vsphere.local", "secret"))
	for _, name := range []string{"web-1", "web-2"} {
		_, err := d.vcenter.AddMachine(name)
		d.Must(err)
	}
}

// prepare has commands find the programs, the cluster and the vCenter.
func (d *firstDay) prepare() {
	helm, err := env.Helm(d.Context(), d.Logf)
	d.Must(err)
	folder := d.TempDir()
	d.Must(os.WriteFile(filepath.Join(folder, "password"), []byte("secret"), 0o600))
	d.walk = pages.Walk{
		Folder: folder,
		Environment: []string{
			"KUBECONFIG=" + d.Plane.Kubeconfig(), "KUBERC=off", "KUBECACHEDIR=" + filepath.Join(folder, "cache"), "HELM_CACHE_HOME=" + filepath.Join(folder, "helm"),
			"PATH=" + strings.Join([]string{d.Dir, filepath.Dir(d.Plane.Assets.Kubectl), filepath.Dir(helm), os.Getenv("PATH")}, string(os.PathListSeparator)),
		},
		Here: []string{
			"oci://registry.example.org/team/charts/sallyport --version 0.1.0", d.Sallyport.Chart(),
			"oci://registry.example.org/team/charts/sallyport --version 0.2.0", d.Sallyport.Chart(),
			"https://vcenter.example.org", d.vcenter.URL(),
			"0B:6C:4E:F1:93:27:5D:A8:11:C0:7E:36:D2:49:8A:F5:60:1B:BC:73:2E:94:D8:05:EF:58:A1:3D:C6:7F:22:9B", thumbprint(d.vcenter.CABundle()),
			"/dc-1/vm/team-a", "/DC0/vm",
		},
		Before: d.before,
	}
}

// before does what the pages have a reader do that no block shows in this order.
func (d *firstDay) before(command string) (skip bool) {
	switch {
	case strings.HasPrefix(command, "kubectl create namespace team-a"):
		_, stderr, code := d.Plane.Kubectl(d.Context(), "create", "secret", "generic", "vc-1-login", "-n", "sallyport-system",
			"--from-literal=username=sallyport@vsphere.local", "--from-file=password="+filepath.Join(d.walk.Folder, "password"))
		if code != 0 {
			d.Fatal(stderr)
		}
	case command == "kubectl sallyport release --all --dry-run=client":
		_, err := d.vcenter.AddMachine("db-1")
		d.Must(err)
		tutorial := d.walk
		tutorial.Before = nil
		tutorial.Run(d.T.T, d.page("policies.md", "A first policy"))
	}
	return false
}

// page reads a page, or the section with a title.
func (d *firstDay) page(name, title string) pages.Page {
	text, err := os.ReadFile("../../../docs/" + name)
	d.Must(err)
	section := string(text)
	if title != "" {
		_, section, _ = strings.Cut(section, "\n## "+title+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
	}
	return pages.Parse("docs/"+name, section)
}

// thumbprint is what openssl prints of the certificate.
func thumbprint(certificate []byte) string {
	block, _ := pem.Decode(certificate)
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(block.Bytes)), " ", ":")
}
