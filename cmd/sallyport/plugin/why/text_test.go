package why

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/test/support/pages"
)

var update = flag.Bool("update", false, "write testdata")

// What people read, of everything at once. -update writes it anew.
func TestTexts(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 14, 5, 0, time.UTC)
	for name, r := range map[string]cli.Report{"machine": &machineReport{}, "leaving": &machineReport{}, "answers": &machineReport{}, "operation": &operationReport{}, "ended": &operationReport{}} {
		t.Run(name, func(t *testing.T) {
			given, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(given, r); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := cli.Render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			pages.Golden(t, *update, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// What a pool says of itself, as a person reads it.
func TestPoolsInShort(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	condition := func(t v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) metav1.Condition {
		c := t.Condition(status, reason, 1, message)
		c.LastTransitionTime = metav1.NewTime(now.Add(-3 * time.Minute))
		return c
	}
	steady := []metav1.Condition{
		condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasReady, ""),
		condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonSteady, ""),
		condition(v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonPoolSynced, ""),
		condition(v1alpha1.ConditionScaleDownBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked, ""),
		condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAsWanted, ""),
	}
	why := "ci-2 is busy with https://ci.example.com/jobs/4711 until 2026-01-02T15:34:05Z"
	blocked := []metav1.Condition{
		steady[0],
		condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonMembersBusy, why),
		condition(v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonRolloutInProgress, "1 of 4 members have an earlier template"),
		condition(v1alpha1.ConditionScaleDownBlocked, metav1.ConditionTrue, v1alpha1.ReasonMembersBusy, why),
		condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersBusy, why),
	}
	growing := []metav1.Condition{
		condition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonInsufficientReadyReplicas, "1 of 5 members are ready"),
		condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonReplicasProgressing, "3 of 5 members exist"),
	}
	var many []busyMember
	for i := range 12 {
		many = append(many, busyMember{fmt.Sprintf("ci-%d", i), "job\n" + fmt.Sprint(i), now})
	}
	status := func(present int32, conditions []metav1.Condition) v1alpha1.VirtualMachinePoolStatus {
		return v1alpha1.VirtualMachinePoolStatus{Replicas: present, ReadyReplicas: 3, UpdatedReplicas: 4, Conditions: conditions}
	}
	for name, r := range map[string]*poolReport{
		"pool-steady":  {Status: status(4, steady), Reconciled: true},
		"pool-changed": {Status: status(4, steady)},
		"pool-growing": {Status: status(3, growing), Reconciled: true},
		"pool-blocked": {
			Status: status(4, blocked), Reconciled: true, Going: []goingMember{{"ci-0", true}, {"ci-3", false}},
			Busy: []busyMember{{"ci-2", "https://ci.example.com/jobs/4711", now.Add(30 * time.Minute)}},
		},
		"pool-busy": {Status: status(12, blocked), Reconciled: true, Busy: many},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := cli.Render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			pages.Golden(t, *update, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// What an image says of itself, as a person reads it.
func TestImagesInShort(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	condition := func(about v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) metav1.Condition {
		c := about.Condition(status, reason, 1, message)
		c.LastTransitionTime = at(3 * time.Minute)
		return c
	}
	users := []v1alpha1.VMDiskImageUser{{Kind: "VirtualDisk", Name: "data", UID: "1"}, {Kind: "VirtualMachine", Name: "web-1", UID: "2"}}
	for name, r := range map[string]*imageReport{
		"image-new": {},
		"image-importing": {
			Reconciled: true, Waiting: []string{"svd/root"},
			Spec: v1alpha1.VMDiskImageSpec{AllowedNamespaces: v1alpha1.VMDiskImageNamespaces{From: v1alpha1.VMDiskImageFromSelector}},
			Status: v1alpha1.VMDiskImageStatus{
				Phase:      v1alpha1.VMDiskImageImporting,
				Attempt:    &v1alpha1.VMDiskImageAttempt{Number: 2, StartedAt: at(10 * time.Minute), Progress: "45.12%"},
				Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonImporting, "attempt 2: CDI reports phase ImportInProgress")},
			},
		},
		"image-unused": {
			Reconciled: true,
			Spec: v1alpha1.VMDiskImageSpec{
				Retired: true, DeletionPolicy: v1alpha1.VMDiskImageDeleteAfterUnreferenced, TTLAfterUnreferenced: &metav1.Duration{Duration: 2 * time.Hour},
			},
			Status: v1alpha1.VMDiskImageStatus{
				Phase: v1alpha1.VMDiskImageReady, References: &v1alpha1.VMDiskImageReferences{}, UnreferencedSince: new(at(30 * time.Minute)),
				Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonImageReady, "")},
			},
		},
		"image-terminating": {
			UID: "u-1", Reconciled: true, Terminating: true,
			Spec: v1alpha1.VMDiskImageSpec{DeletionPolicy: v1alpha1.VMDiskImageDeleteAfterUnreferenced},
			Status: v1alpha1.VMDiskImageStatus{
				Phase:      v1alpha1.VMDiskImageTerminating,
				Attempt:    &v1alpha1.VMDiskImageAttempt{Number: 1, StartedAt: at(time.Hour), RetryAt: new(at(-time.Minute))},
				References: &v1alpha1.VMDiskImageReferences{Count: 3, Elsewhere: 1, Users: users},
				Conditions: []metav1.Condition{
					condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonTerminating, "the image is used by 3 disks"),
					condition(v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageReferenced, "the image is used by 3 disks"),
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := cli.Render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			pages.Golden(t, *update, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// What a vCenter says of itself, as a person reads it. Marks of machines are whatever somebody has written.
func TestServersInShort(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	ready := func(status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) []metav1.Condition {
		c := v1alpha1.ConditionReady.Condition(status, reason, 1, message)
		c.LastTransitionTime = metav1.NewTime(now.Add(-3 * time.Minute))
		return []metav1.Condition{c}
	}
	connected := ready(metav1.ConditionTrue, v1alpha1.ReasonConnected, "")
	orphan := func(n int, of string) v1alpha1.VSphereOrphan {
		return v1alpha1.VSphereOrphan{Path: fmt.Sprintf("/dc/vm/web-%02d", n), UID: "0f0e", VirtualMachine: of}
	}
	var many []v1alpha1.VSphereOrphan
	for n := range 12 {
		many = append(many, orphan(n, "shop/web"))
	}
	for name, r := range map[string]*serverReport{
		"server-new":         {},
		"server-connected":   {Reconciled: true, Conditions: connected},
		"server-unavailable": {Reconciled: true, Conditions: ready(metav1.ConditionUnknown, v1alpha1.ReasonRuntimeUnavailable, "vCenter vc-1 did not answer in time")},
		"server-orphans": {Reconciled: true, Conditions: connected, OrphanCount: 2, Orphans: []v1alpha1.VSphereOrphan{
			{Path: "/dc/vm/unreadable"}, orphan(1, "shop/web-1"),
		}},
		"server-many-orphans": {Reconciled: true, Conditions: connected, OrphanCount: 30, Orphans: many},
		"server-hostile-mark": {Reconciled: true, Conditions: connected, OrphanCount: 1, Orphans: []v1alpha1.VSphereOrphan{
			orphan(1, "$(touch x)/web; rm -rf /"),
		}},
		"server-nameless-mark": {Reconciled: true, Conditions: connected, OrphanCount: 1, Orphans: []v1alpha1.VSphereOrphan{{Path: "/dc/vm/a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := cli.Render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			pages.Golden(t, *update, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// What a template says of itself, as a person reads it.
func TestTemplatesInShort(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	domain := func(name string, step v1alpha1.VSphereTemplateStep, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string, releases ...string) v1alpha1.VSphereFailureDomainStatus {
		c := v1alpha1.ConditionReady.Condition(status, reason, 1, message)
		c.LastTransitionTime = metav1.NewTime(now.Add(-3 * time.Minute))
		d := v1alpha1.VSphereFailureDomainStatus{Name: name, Step: step, Conditions: []metav1.Condition{c}}
		for i, r := range releases {
			if i == 0 {
				d.Release = r
			}
			d.Versions = append(d.Versions, v1alpha1.VSphereTemplateVersion{Release: r, Name: "ubuntu-" + r})
		}
		return d
	}
	importing := domain("a", v1alpha1.VSphereTemplateImporting, metav1.ConditionFalse, v1alpha1.ReasonTemplateInProgress, "release 3 is in progress", "2", "1")
	importing.Progress = new(int32(40))
	for name, r := range map[string]*templateReport{
		"template-new": {},
		"template-done": {Reconciled: true, Users: []string{"svm/web-1", "svmpool/ci"}, Status: v1alpha1.VSphereTemplateStatus{FailureDomains: []v1alpha1.VSphereFailureDomainStatus{
			domain("a", v1alpha1.VSphereTemplateDone, metav1.ConditionTrue, v1alpha1.ReasonTemplateReady, "", "2"),
		}}},
		"template-under-way": {Reconciled: true, Status: v1alpha1.VSphereTemplateStatus{FailureDomains: []v1alpha1.VSphereFailureDomainStatus{
			importing,
			domain("b", v1alpha1.VSphereTemplateWaiting, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "spec.failureDomains[b].folder: vCenter vc-1 has no folder at /dc/vm/b, or does not show it"),
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := cli.Render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			pages.Golden(t, *update, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// Without cert-manager, the report of mode cert-manager says so, and that of mode auto does not.
func TestWhyCertificateWithoutCertManager(t *testing.T) {
	c := &cli.Cluster{WithWatch: interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "cert-manager.io", Kind: "Certificate"}}
		},
	})}
	for mode, want := range map[string]string{"cert-manager": noCertManager, "auto": ""} {
		r := &certificateReport{Mode: mode, Namespace: "n", issued: "w-tls"}
		if r.certManager(t.Context(), c); r.CertManager != want || len(r.Unknown) > 0 || want != "" && r.next() != "" {
			t.Errorf("mode %s: %+v, next %q", mode, r, r.next())
		}
	}
}

// A Secret of another mode, which no webhook configuration trusts, is no problem.
func TestWhyCertificateOfAnotherSource(t *testing.T) {
	end := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &certificateReport{Replicas: map[string]string{"a": "s"}, Secrets: []certificateSecret{
		{Name: "s", Issuer: "CN=x", NotAfter: &end}, {Name: "other", Issuer: "CN=y", NotAfter: &end, Problem: "not trusted by c"},
	}}
	var text strings.Builder
	if err := cli.Render(&text, r, end); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "Z: trusted by all") || !strings.Contains(got, "Z: not served, not trusted by c") || strings.Contains(got, "Next step:") {
		t.Errorf("got\n%s", got)
	}
}

// What is wrong is told with the command that shows more.
func TestWhyCertificateProblems(t *testing.T) {
	end := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	good := certificateSecret{Name: "s", Issuer: "CN=x", NotAfter: &end}
	untrusted := good
	untrusted.Problem = "not trusted by ValidatingWebhookConfiguration sallyport: x509: unknown authority"
	for name, tc := range map[string]struct {
		r    certificateReport
		want string
	}{
		"all is well":      {certificateReport{Secrets: []certificateSecret{good}, Replicas: map[string]string{"a": "s"}}, ""},
		"untrusted":        {certificateReport{Secrets: []certificateSecret{untrusted}, Replicas: map[string]string{"a": "s"}}, "kubectl logs -l app.kubernetes.io/name=sallyport"},
		"no replica":       {certificateReport{Secrets: []certificateSecret{good}}, "kubectl get pods"},
		"a failed request": {certificateReport{issued: "w-tls", CertManager: "Ready=False no issuer; 3 failed attempts", Replicas: map[string]string{"a": "none"}}, "kubectl describe certificates.cert-manager.io w-tls"},
	} {
		tc.r.Namespace = "n"
		var text strings.Builder
		if err := cli.Render(&text, &tc.r, end); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(text.String(), "Next step:"); has != (tc.want != "") || !strings.Contains(text.String(), tc.want) {
			t.Errorf("%s: got\n%s", name, &text)
		}
	}
}
