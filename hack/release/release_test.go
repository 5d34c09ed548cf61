package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"

	"sallyport.dev/sallyport/test/support/env"
)

// committed is when the commits of trees were made.
const committed = "2026-01-02 03:04:05"

// serve runs a registry and returns its address with a path.
func serve(t *testing.T, options ...registry.Option) string {
	t.Helper()
	server := httptest.NewServer(registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/team"
}

func TestRelease(t *testing.T) {
	push := serve(t, registry.WithReferrersSupport(true))
	folder := tree(t)
	dist, printed := releases(t, tried(folder, t.TempDir(), push))

	t.Run("two builds from two folders are equal, and the second one changes nothing in the registry", func(t *testing.T) {
		other, _ := releases(t, tried(tree(t), t.TempDir(), push))
		if diff := cmp.Diff(string(read(t, filepath.Join(dist, "SHA256SUMS"))), string(read(t, filepath.Join(other, "SHA256SUMS")))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("checksums", func(t *testing.T) { checksums(t, dist) })
	t.Run("archives", func(t *testing.T) { archives(t, dist) })
	t.Run("SBOM and licences", func(t *testing.T) { inventory(t, dist) })
	t.Run("image", func(t *testing.T) { image(t, folder, dist, push, printed) })
	t.Run("chart", func(t *testing.T) { chart(t, push) })
	t.Run("a version that was pushed does not change", func(t *testing.T) {
		put(t, filepath.Join(folder, chartFolder, "README.md"), "changed")
		commit(t, folder)
		err := run(t.Context(), io.Discard, tried(folder, t.TempDir(), push))
		if err == nil || !strings.Contains(err.Error(), "/team/sallyport:v0.1.0-rc.1 is already sha256:") {
			t.Errorf("the second release says %v", err)
		}
	})
}

func checksums(t *testing.T, dist string) {
	var names, want []string
	for line := range strings.Lines(string(read(t, filepath.Join(dist, "SHA256SUMS")))) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, file)
		if is, err := checksum(filepath.Join(dist, file)); err != nil || is != sum {
			t.Errorf("%s has the checksum %s, %v", file, is, err)
		}
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "SHA256SUMS" {
			want = append(want, e.Name())
		}
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if len(want) != 9 {
		t.Errorf("the release has the files %s", want)
	}
}

func archives(t *testing.T, dist string) {
	for archive, program := range map[string]string{
		"sallyport_v0.1.0-rc.1_" + host.String() + ".tar.gz":         "sallyport",
		"kubectl-sallyport_v0.1.0-rc.1_" + host.String() + ".tar.gz": "kubectl-sallyport",
		"sallyport_v0.1.0-rc.1_windows_amd64.zip":                    "sallyport.exe",
		"kubectl-sallyport_v0.1.0-rc.1_windows_amd64.zip":            "kubectl-sallyport.exe",
	} {
		files := unpack(t, filepath.Join(dist, archive))
		want := map[string]member{
			program: {Mode: 0o755, When: committed}, "LICENSE": {Mode: 0o644, When: committed}, "THIRD_PARTY_LICENSES.txt": {Mode: 0o644, When: committed},
		}
		if diff := cmp.Diff(want, files, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".text" }, cmp.Ignore())); diff != "" {
			t.Errorf("%s: %s", archive, diff)
		}
		if strings.Contains(archive, host.String()) {
			versionsPrinted(t, runs(t.Context(), t, files[program].text))
		}
	}
}

// versionsPrinted checks what the tiny program prints of its version.
func versionsPrinted(t *testing.T, printed []byte) {
	t.Helper()
	var all []version.Info
	if err := json.Unmarshal(printed, &all); err != nil || len(all) != 2 {
		t.Fatalf("%v: %s", err, printed)
	}
	ours, clients := all[0], all[1]
	want := version.Info{
		GitVersion: "v0.1.0-rc.1", GitCommit: ours.GitCommit, GitTreeState: "clean", BuildDate: "2026-01-02T03:04:05Z",
		GoVersion: ours.GoVersion, Compiler: "gc", Platform: host.os + "/" + host.arch,
	}
	if diff := cmp.Diff(want, ours); diff != "" || len(ours.GitCommit) != 40 {
		t.Errorf("%s\ncommit %s", diff, ours.GitCommit)
	}
	if clients.GitVersion != ours.GitVersion || clients.GitCommit != ours.GitCommit {
		t.Errorf("user agents have the version %s of commit %s", clients.GitVersion, clients.GitCommit)
	}
}

func inventory(t *testing.T, dist string) {
	file, err := os.Open(filepath.Join(dist, "sallyport_v0.1.0-rc.1_sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	bom := cyclonedx.BOM{}
	if err := cyclonedx.NewBOMDecoder(file, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	licences := map[string]string{}
	for _, c := range *bom.Components {
		for _, l := range *c.Licenses {
			licences[c.Name] += l.License.ID
		}
	}
	want := map[string]string{"std": "BSD-3-Clause", "k8s.io/apimachinery": "Apache-2.0", "k8s.io/client-go": "Apache-2.0"}
	if diff := cmp.Diff(want, licences); diff != "" {
		t.Error(diff)
	}
	texts := string(read(t, filepath.Join(dist, "sallyport_v0.1.0-rc.1_licenses.txt")))
	for name := range want {
		if !strings.Contains(texts, name+" ") {
			t.Errorf("the licence of %s is missing", name)
		}
	}
}

func image(t *testing.T, folder, dist, push, printed string) {
	tag, err := name.NewTag(push + "/sallyport:v0.1.0-rc.1")
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed, "pushed "+tag.String()+" "+digest.String()+"\n") {
		t.Errorf("it prints:\n%s", printed)
	}
	layout := unpack(t, filepath.Join(dist, "sallyport_v0.1.0-rc.1_image.tar"))
	var saved v1.IndexManifest
	if err := json.Unmarshal(layout["index.json"].text, &saved); err != nil {
		t.Fatal(err)
	}
	if len(saved.Manifests) != 1 || saved.Manifests[0].Digest != digest || layout["blobs/sha256/"+digest.Hex].text == nil {
		t.Errorf("the archive has %s, and %s is pushed", layout["index.json"].text, digest)
	}
	pushed, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range pushed.Manifests {
		found = append(found, m.Platform.String())
		one, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		imageOf(t, folder, one, *m.Platform)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, found); diff != "" {
		t.Error(diff)
	}
	referrers, err := remote.Referrers(tag.Digest(digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	attached, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(attached.Manifests) != 1 || attached.Manifests[0].ArtifactType != "application/vnd.cyclonedx+json" {
		t.Fatalf("attached to the image is %v", attached.Manifests)
	}
	bill, err := remote.Image(tag.Digest(attached.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := bill.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(content)
	if want := read(t, filepath.Join(dist, "sallyport_v0.1.0-rc.1_sbom.cdx.json")); err != nil || string(text) != string(want) {
		t.Errorf("another SBOM is attached than released: %v", err)
	}
}

// imageOf checks the image of a platform.
func imageOf(t *testing.T, folder string, one v1.Image, p v1.Platform) {
	config, err := one.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	created := config.Created.UTC().Format("2006-01-02 15:04:05")
	if config.OS != p.OS || config.Architecture != p.Architecture || created != committed {
		t.Errorf("the image of %s says %s/%s, %s", p, config.OS, config.Architecture, created)
	}
	labels := map[string]string{
		"org.opencontainers.image.title": "sallyport", "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source": "https://sallyport.dev/sallyport", "org.opencontainers.image.version": "v0.1.0-rc.1",
		"org.opencontainers.image.revision": git(t, folder, "rev-parse", "HEAD"), "org.opencontainers.image.created": "2026-01-02T03:04:05Z",
	}
	if diff := cmp.Diff(v1.Config{User: "65532:65532", Entrypoint: []string{"/usr/local/bin/sallyport"}, Labels: labels}, config.Config); diff != "" {
		t.Error(diff)
	}
	content := mutate.Extract(one)
	defer content.Close()
	files := untar(t, content)
	if names := slices.Collect(maps.Keys(files)); len(names) != 1 || names[0] != "usr/local/bin/sallyport" || files[names[0]].Mode != 0o755 {
		t.Errorf("the image of %s has the files %s", p, names)
	}
	if p.OS == host.os && p.Architecture == host.arch {
		versionsPrinted(t, runs(t.Context(), t, files["usr/local/bin/sallyport"].text))
	}
}

// chart installs the chart from the registry, and finds its image there.
func chart(t *testing.T, push string) {
	cp := env.Shared(t)
	stdout, stderr, code := cp.Helm(t.Context(), "install", "sallyport", "oci://"+push+"/charts/sallyport", "--version", "0.1.0-rc.1", "--plain-http",
		"--namespace", "sallyport-system", "--create-namespace")
	if code != 0 {
		t.Fatalf("%s%s", stdout, stderr)
	}
	t.Cleanup(func() { cp.Helm(t.Context(), "uninstall", "sallyport", "--namespace", "sallyport-system") })
	if !strings.Contains(stdout, "Sallyport v0.1.0-rc.1 is installed") {
		t.Errorf("helm prints %s", stdout)
	}
	client, err := kubernetes.NewForConfig(cp.Config)
	if err != nil {
		t.Fatal(err)
	}
	var installed *appsv1.Deployment
	if installed, err = client.AppsV1().Deployments("sallyport-system").Get(t.Context(), "sallyport", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	image := installed.Spec.Template.Spec.Containers[0].Image
	tag, err := name.NewTag(push + "/sallyport:v0.1.0-rc.1")
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Head(tag)
	if err != nil {
		t.Fatal(err)
	}
	if want := tag.Digest(pushed.Digest.String()).String(); image != want {
		t.Errorf("the Deployment runs %s, and %s was pushed", image, want)
	}
}

func TestRefusals(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(broken.Close)
	folder := tree(t)
	for sentence, tc := range map[string]struct {
		change func(*options)
		dirty  bool
		want   string
	}{
		"no version":                        {func(o *options) { o.version = "" }, false, `-version "": must be a semantic version with a leading v`},
		"a version without its v":           {func(o *options) { o.version = "0.1.0" }, false, `-version "0.1.0": must be`},
		"a version that no tag can have":    {func(o *options) { o.version = "v0.1.0+x" }, false, `-version "v0.1.0+x": must be`},
		"a version that is a path":          {func(o *options) { o.version = "v0.1.0-../../x" }, false, "must be"},
		"a tree with changes":               {func(*options) {}, true, "the tree has uncommitted changes"},
		"no repository":                     {func(o *options) { o.root = t.TempDir() }, false, "running git log"},
		"a program that is not there":       {func(o *options) { o.program = "./cmd/other" }, false, "making the image of linux_amd64: running go build"},
		"a registry whose name is none":     {func(o *options) { o.push = "a b" }, false, "registry to push to"},
		"a registry that accepts no pushes": {func(o *options) { o.push = strings.TrimPrefix(broken.URL, "http://") }, false, "looking for "},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := tried(folder, t.TempDir(), "")
			o.platforms, o.imagePlatforms = []platform{host}, []platform{host}
			tc.change(&o)
			if tc.dirty {
				extra := filepath.Join(folder, "extra.txt")
				put(t, extra, "x")
				t.Cleanup(func() { _ = os.Remove(extra) })
			}
			if err := run(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, not %q", err, tc.want)
			}
		})
	}
}

// An image is also made of what is not committed, and its tag moves.
func TestImageOnly(t *testing.T) {
	folder, out := tree(t), t.TempDir()
	put(t, filepath.Join(folder, "extra.txt"), "x")
	o := tried(folder, out, serve(t))
	o.imageOnly, o.imagePlatforms = true, []platform{host}
	var digests []string
	for _, epoch := range []string{"1600000000", "1700000000"} {
		t.Setenv("SOURCE_DATE_EPOCH", epoch)
		if err := run(t.Context(), io.Discard, o); err != nil {
			t.Fatal(err)
		}
		tag, err := name.NewTag(o.push + "/sallyport:v0.1.0-rc.1")
		if err != nil {
			t.Fatal(err)
		}
		pushed, err := remote.Head(tag)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, pushed.Digest.String())
	}
	if digests[0] == digests[1] {
		t.Errorf("the images of two times are %s", digests)
	}
	entries, err := os.ReadDir(filepath.Join(out, o.version))
	if err != nil || fmt.Sprint(entries) != "[- sallyport_v0.1.0-rc.1_image.tar]" {
		t.Errorf("it writes %v, %v", entries, err)
	}
	for name, file := range unpack(t, filepath.Join(out, o.version, "sallyport_v0.1.0-rc.1_image.tar")) {
		if file.When != "2023-11-14 22:13:20" {
			t.Errorf("%s is of %s", name, file.When)
		}
	}
}
