package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

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
			if err := render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

func TestWhyAPool(t *testing.T) {
	w := newWorld(t)
	pool, members := w.poolAt(3)
	in := " -n " + pool.Namespace
	w.plugin("busy ci-1 --for 30m --holder "+job+in, 0)
	w.plugin("scale-down ci --vm ci-2"+in, 0)
	w.Must(w.Delete(t.Context(), members[0]))
	w.wanted(pool) // reads it
	pool.Status.Replicas = 3
	v1alpha1.SetCondition(&pool.Status.Conditions,
		v1alpha1.ConditionScaleDownBlocked.Condition(metav1.ConditionTrue, v1alpha1.ReasonMembersBusy, 1, "ci-1 is busy"), time.Now())
	w.Must(w.Status().Update(t.Context(), pool))
	w.make(note(pool, v1alpha1.GroupVersion.String(), poolKind, "SuccessfulDelete", "deleted VirtualMachine ci-0", time.Now()))
	for _, line := range []string{"svmpool ci", "svmpool/ci", "virtualmachinepools.sallyport.dev ci"} {
		shows(t, w.plugin("why "+line+in, 0).stdout, "VirtualMachinePool ci in namespace "+pool.Namespace, "Replicas: +2",
			"Members: +3; running: 0; up to date: 0", "Waiting for: +reconciliation of the latest change",
			" +ScaleDownBlocked True for .*, MembersBusy: ci-1 is busy",
			`Removing: +ci-0 \(being deleted\), ci-2 \(scale-down target\)`, "Busy: +ci-1 until .*Z: "+job, "Events: +SuccessfulDelete .* ago: deleted VirtualMachine ci-0")
	}
	var known objectReport
	w.Must(json.Unmarshal([]byte(w.plugin("why svmpool ci -o json"+in, 0).stdout), &known))
	if p := known.Pool; p == nil || len(p.Busy) != 1 || p.Busy[0].Name != "ci-1" || p.Busy[0].Holder != job || len(p.Going) != 2 {
		t.Errorf("known as JSON is %+v", known.Pool)
	}
	w.plugin("why svmpool nothing"+in, 1, "NotFound")
}
