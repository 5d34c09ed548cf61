//go:build cdi

package cdi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// ending is a source, or an accident of an import, and how the import ends.
type ending struct {
	name   string
	source mode
	fate   string // of the importers
	change func(*v1alpha1.VMDiskImage)
	// secret is the password in the account that the image has, if it has one.
	secret string
	// prepare is what happens before the image is created.
	prepare func(s *site, namespace string)
	// during is what happens once the import runs.
	during func(*site, *v1alpha1.VMDiskImage)

	phase    v1alpha1.VMDiskImagePhase
	reason   v1alpha1.ConditionReason
	says     string // a part of the message
	restarts int32  // of the importer, if the image is ready
	data     []byte // instead of the image of the namespace
}

func checked(i *v1alpha1.VMDiskImage) { i.Spec.Checksum = checksumOf(data(i.Namespace)) }

func retried(i *v1alpha1.VMDiskImage) { i.Spec.Import.RetryLimit = new(int32(2)) }

// trusted is the source of an image on a host that the administrator allows, whatever the Secret says.
func trusted(i *v1alpha1.VMDiskImage) {
	i.Spec.URL = strings.Replace(i.Spec.URL, "images.test", trustedHost, 1)
	i.Spec.SecretRef = &v1alpha1.VMDiskImageSecretReference{Name: "account"}
}

func hurried(i *v1alpha1.VMDiskImage) {
	i.Spec.Import.Deadline = &metav1.Duration{Duration: 30 * time.Second}
}

func s3(i *v1alpha1.VMDiskImage) { i.Spec.SourceType = v1alpha1.VMDiskImageS3 }

func container(i *v1alpha1.VMDiskImage) { i.Spec.SourceType = v1alpha1.VMDiskImageRegistry }

func stalls(i *v1alpha1.VMDiskImage) {
	i.Spec.Import.StallTimeout = &metav1.Duration{Duration: 15 * time.Second}
}

const (
	isReady, isFailed = v1alpha1.VMDiskImageReady, v1alpha1.VMDiskImageFailed
	exceeded          = v1alpha1.ReasonRetryLimitExceeded
	late              = string(v1alpha1.ReasonImportDeadlineExceeded)
)

func endings() []ending {
	full := bytes.Repeat(data("full"), 16) // a mebibyte, the size of the disk
	return []ending{
		{name: "http", source: whole, change: checked, phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "s3", source: fromS3, change: s3, secret: password, phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "s3-without-account", source: fromS3, change: s3, phase: isFailed, reason: exceeded, says: "StatusCode: 403"},
		{name: "s3-wrong-account", source: fromS3, change: s3, secret: "another-password", phase: isFailed, reason: exceeded, says: "SignatureDoesNotMatch"},
		{name: "s3-cut", source: cut, change: s3, secret: password, phase: isFailed, reason: exceeded, says: "unexpected EOF"},
		{name: "s3-cut-once", source: first(cut, fromS3), change: func(i *v1alpha1.VMDiskImage) { s3(i); retried(i) }, secret: password, phase: isReady, reason: v1alpha1.ReasonImageReady, restarts: 1},
		{name: "s3-unavailable", source: answer(http.StatusServiceUnavailable), change: s3, secret: password, phase: isFailed, reason: exceeded, says: "StatusCode: 503"},
		{name: "s3-stall", source: stall, change: func(i *v1alpha1.VMDiskImage) { s3(i); stalls(i) }, secret: password, phase: isFailed, reason: exceeded, says: string(v1alpha1.ReasonImportStalled)},
		{name: "s3-changed-unnoticed", source: first(cut, other), change: func(i *v1alpha1.VMDiskImage) { s3(i); retried(i) }, phase: isReady, reason: v1alpha1.ReasonImageReady, restarts: 1, data: data("other")},
		{name: "registry", source: privateRegistry, change: container, secret: password, phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "registry-without-account", source: privateRegistry, change: container, phase: isFailed, reason: exceeded, says: "401"},
		{name: "registry-cut-once", source: first(cut, fromRegistry), change: func(i *v1alpha1.VMDiskImage) { container(i); retried(i) }, phase: isReady, reason: v1alpha1.ReasonImageReady, restarts: 1},
		{name: "registry-changed", source: otherManifest, change: container, phase: isFailed, reason: exceeded, says: "does not match requested digest"},
		{name: "registry-unavailable", source: answer(http.StatusServiceUnavailable), change: container, phase: isFailed, reason: exceeded, says: "503"},
		{name: "cut", source: cut, phase: isFailed, reason: exceeded, says: "unexpected EOF"},
		{name: "cut-once", source: first(cut, whole), change: retried, phase: isReady, reason: v1alpha1.ReasonImageReady, restarts: 1},
		{name: "unavailable", source: answer(http.StatusServiceUnavailable), phase: isFailed, reason: exceeded, says: "got 503"},
		{name: "unavailable-once", source: first(answer(http.StatusServiceUnavailable), whole), change: retried, phase: isReady, reason: v1alpha1.ReasonImageReady, restarts: 1},
		{name: "missing", source: answer(http.StatusNotFound), phase: isFailed, reason: exceeded, says: "got 404"},
		{name: "private-without-account", source: private, phase: isFailed, reason: exceeded, says: "got 403"},
		{name: "stall", source: stall, change: stalls, phase: isFailed, reason: exceeded, says: string(v1alpha1.ReasonImportStalled)},
		{name: "slow", source: slow, change: stalls, phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "wrong-data", source: other, change: checked, phase: isFailed, reason: v1alpha1.ReasonChecksumMismatch, says: "checksum mismatch"},
		{name: "changed-between", source: first(cut, other), change: func(i *v1alpha1.VMDiskImage) { checked(i); retried(i) }, phase: isFailed, reason: v1alpha1.ReasonChecksumMismatch, says: "checksum mismatch"},
		{name: "changed-unnoticed", source: first(cut, other), change: retried, phase: isReady, reason: v1alpha1.ReasonImageReady, restarts: 1, data: data("other")},
		{name: "too-large", source: func(_ *source, w http.ResponseWriter, _ *http.Request, _ int) { send(w, make([]byte, 4<<20)) }, phase: isFailed, reason: exceeded, says: "DataVolume too small to contain image"},
		{name: "redirected", source: redirect("mirror.test", private), secret: password, phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "redirected-to-metadata", source: redirect("169.254.169.254", whole), phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "redirected-to-nothing", source: redirect("mirror.test", func(*source, http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) }), secret: password, phase: isFailed, reason: exceeded, says: "EOF"},
		{name: "redirected-for-ever", source: redirect("images.test", nil), change: hurried, phase: isFailed, reason: exceeded, says: late},
		{name: "evicted", fate: evicted, phase: isFailed, reason: exceeded, says: "the importer's Pod failed"},
		{name: "pod-deleted", source: first(stall, whole), during: podDeleted, phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "claim-deleted", source: stall, during: claimDeleted, phase: isFailed, reason: exceeded, says: "the DataVolume was deleted"},
		{name: "as-large-as-the-disk", source: func(_ *source, w http.ResponseWriter, _ *http.Request, _ int) { send(w, full) }, phase: isReady, reason: v1alpha1.ReasonImageReady, data: full},
		{name: "out-of-memory-once", fate: outOfRAM, phase: isReady, reason: v1alpha1.ReasonImageReady},
		{name: "without-its-secret", change: func(i *v1alpha1.VMDiskImage) { hurried(i); trusted(i) }, phase: isFailed, reason: exceeded, says: `secret "account" not found`},
		{name: "without-its-keys", change: func(i *v1alpha1.VMDiskImage) { hurried(i); trusted(i) }, prepare: func(s *site, ns string) {
			s.Must(s.Create(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "account"}, StringData: map[string]string{"accessKeyId": user}}))
		}, phase: isFailed, reason: exceeded, says: "couldn't find key secretKey in Secret"},
		// A claim, a second one that is filled, and one for scratch space.
		{name: "quota-of-no-claim", change: hurried, prepare: quota("0"), phase: isFailed, reason: exceeded, says: "exceeded quota"},
		{name: "quota-of-one-claim", change: hurried, prepare: quota("1"), phase: isFailed, reason: exceeded, says: "exceeded quota"},
		{name: "quota-of-two-claims", change: hurried, prepare: quota("2"), phase: isFailed, reason: exceeded, says: "exceeded quota"},
		// CDI does not create a claim, and says so in an event of the DataVolume only.
		{name: "no-access-mode", change: func(i *v1alpha1.VMDiskImage) { hurried(i); i.Spec.StorageClass = plainClass }, phase: isFailed, reason: exceeded,
			says: "DataVolume: ErrClaimNotValid"},
		{name: "without-the-importer", fate: noImage, change: hurried, phase: isFailed, reason: exceeded, says: "ImagePullFailed"},
	}
}

// sources has images imported from sources that behave in many ways. What failed leaves no data, and no text has an account.
func (s *site) sources() {
	for _, e := range endings() {
		s.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s.in(t).ends(e)
		})
	}
}

func (s *site) ends(e ending) {
	ns := "source-" + e.name
	s.source.mu.Lock()
	s.source.modes[ns] = e.source
	s.source.mu.Unlock()
	s.importers.fate.Store(ns, e.fate)
	s.namespace(ns)
	i := image(ns, "ubuntu")
	if e.prepare != nil {
		e.prepare(s, ns)
	}
	if e.secret != "" {
		s.Must(s.Create(s.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "account", Annotations: map[string]string{v1alpha1.AnnotationAllowedHosts: "images.test, registry.test"}},
			StringData: map[string]string{"accessKeyId": user, "secretKey": e.secret},
		}))
		i.Spec.SecretRef = &v1alpha1.VMDiskImageSecretReference{Name: "account"}
	}
	if e.change != nil {
		e.change(i)
	}
	switch i.Spec.SourceType {
	case v1alpha1.VMDiskImageS3:
		s.toS3(ns)
	case v1alpha1.VMDiskImageRegistry:
		i.Spec.URL = s.toRegistry(ns)
	}
	began := time.Now()
	s.Must(s.Create(s.Context(), i))
	if e.during != nil {
		s.shows(i, v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
		e.during(s, i)
	}
	s.shows(i, e.phase, e.reason)
	s.Logf("%-24s %s, %s, after %.0f s, %d restarts: %s", e.name, i.Status.Phase, e.reason, time.Since(began).Seconds(), i.Status.Attempt.RestartCount, messageOf(i))
	if !strings.Contains(messageOf(i), e.says) {
		s.Errorf("the message is %q, without %q", messageOf(i), e.says)
	}
	if e.phase == isReady {
		want := e.data
		if want == nil {
			want = data(ns)
		}
		if got := s.claimed(ns, i.Status.Claim.Name); !bytes.Equal(got, want) {
			s.Errorf("the data is not that of the source: %d bytes", len(got))
		}
		if i.Status.Attempt.Number != 1 || i.Status.Attempt.RestartCount != e.restarts {
			s.Errorf("attempt %d with %d restarts, not 1 with %d", i.Status.Attempt.Number, i.Status.Attempt.RestartCount, e.restarts)
		}
	} else {
		s.empty(ns)
	}
	s.discreet(ns)
	s.kubectl("delete", "vmdi", "--all", "-n", ns, "--timeout=2m")
	s.empty(ns)
}

// quota limits the number of claims in a namespace.
func quota(claims string) func(*site, string) {
	return func(s *site, namespace string) {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claims"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse(claims)},
		}}
		s.Must(s.Create(s.Context(), q))
		s.Eventually("the quota is enforced", func() bool { s.read(q); return len(q.Status.Hard) > 0 })
	}
}

// allowed has an image wait for its Secret, and then for the annotation of the Secret that its message names. Until then nothing is created,
// and nobody asks the source.
func (s *site) allowed() {
	const ns = "allowed"
	s.source.mu.Lock()
	s.source.modes[ns] = private
	s.source.mu.Unlock()
	s.namespace(ns)
	i := image(ns, "ubuntu")
	i.Spec.SecretRef = &v1alpha1.VMDiskImageSecretReference{Name: "account"}
	s.Must(s.Create(s.Context(), i))
	s.shows(i, v1alpha1.VMDiskImagePending, v1alpha1.ReasonSecretNotFound)
	s.Must(s.Create(s.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "account"}, StringData: map[string]string{"accessKeyId": user, "secretKey": password},
	}))
	s.shows(i, v1alpha1.VMDiskImagePending, v1alpha1.ReasonSecretHostNotAllowed)
	s.empty(ns)
	s.source.mu.Lock()
	if s.source.asked[ns] > 0 {
		s.Error("the source was asked")
	}
	s.source.mu.Unlock()
	_, command, found := strings.Cut(messageOf(i), ": kubectl ")
	if !found {
		s.Fatalf("the message has no command: %s", messageOf(i))
	}
	s.kubectl(strings.Fields(command)...)
	s.shows(i, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	if !bytes.Equal(s.claimed(ns, i.Status.Claim.Name), data(ns)) {
		s.Error("the claim of the image has other data than the source")
	}
	s.discreet(ns)
}

// podDeleted deletes the Pod that imports, as a user may.
func podDeleted(s *site, i *v1alpha1.VMDiskImage) {
	s.Eventually("the Pod downloads", func() bool {
		s.source.mu.Lock()
		defer s.source.mu.Unlock()
		return s.source.asked[i.Namespace] > 0
	})
	s.kubectl("delete", "pods", "--all", "-n", i.Namespace)
}

// claimDeleted deletes what the import fills, with the DataVolume, as CDI's account.
func claimDeleted(s *site, i *v1alpha1.VMDiskImage) {
	s.kubectl("delete", "datavolumes.cdi.kubevirt.io", "--all", "-n", i.Namespace, "--wait=false", "--as=system:serviceaccount:cdi:cdi-sa", "--as-group=system:masters")
}

// empty waits until nothing is left of the images of a namespace: no object, no volume, no bytes.
func (s *site) empty(namespace string) {
	s.Helper()
	s.Until("nothing is left in "+namespace, func() (string, bool) {
		var volumes cdiv1.DataVolumeList
		s.Must(s.List(s.Context(), &volumes, client.InNamespace(namespace)))
		var pods corev1.PodList
		s.Must(s.List(s.Context(), &pods, client.InNamespace(namespace)))
		left := s.data(namespace)
		seen := fmt.Sprintf("%d DataVolumes, %d claims, %d Pods, data %v", len(volumes.Items), len(s.claims(namespace)), len(pods.Items), left)
		return seen, len(volumes.Items)+len(s.claims(namespace))+len(pods.Items)+len(left) == 0
	})
}

// data lists the volumes and snapshots whose data is the image of a namespace, or a part of it.
func (s *site) data(namespace string) (with []string) {
	s.Helper()
	stored, err := s.driver.stored()
	s.Must(err)
	for _, id := range stored {
		if b, err := s.driver.read(id); err == nil && len(b) > 0 && bytes.HasPrefix(data(namespace), b) {
			with = append(with, id)
		}
	}
	return with
}

// discreet checks that no image, no event of one and no log line of Sallyport has the account, or the token, which CDI repeats in its objects.
func (s *site) discreet(namespace string) {
	s.Helper()
	texts := map[string]string{}
	text, err := os.ReadFile(filepath.Join(s.folder, "sallyport.log"))
	s.Must(err)
	texts["the log"] = string(text)
	var images v1alpha1.VMDiskImageList
	s.Must(s.List(s.Context(), &images, client.InNamespace(namespace)))
	text, err = json.Marshal(images)
	s.Must(err)
	texts["an image"] = string(text)
	var events corev1.EventList
	s.Must(s.List(s.Context(), &events, client.InNamespace(namespace)))
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "VMDiskImage" {
			texts["an event"] += e.Message
		}
	}
	for where, text := range texts {
		for _, secret := range []string{user, password, token} {
			if strings.Contains(text, secret) {
				s.Errorf("%s is in %s: %s", secret, where, text)
			}
		}
	}
}
