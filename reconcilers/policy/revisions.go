package policy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	policyLabel        = v1alpha1.GroupName + "/policy"
	revisionAnnotation = v1alpha1.GroupName + "/revision"
	// keptRevisions is the number of stored revisions per policy.
	keptRevisions = 3
	// maxRevision is the highest accepted revision number. Above the highest possible number nothing could be stored,
	// and its author would determine the policy of every replica that starts.
	maxRevision = 1 << 53
)

// store ensures that the active revision is stored with the highest number of its policy: a replica that cannot use
// the policy itself loads the highest.
//
// Usually one replica leads, but briefly two can. Names are derived from the content, so both write the same object.
// If they disagree about the active revision, each raises the number of its own until the outdated one catches up or
// ends.
func (r *Reconciler) store(ctx context.Context, policy *v1alpha1.RegoPolicy, state State) error {
	if state.Active == "" || len(state.Data) == 0 {
		return nil
	}
	content, err := essence(state.Data)
	if err != nil {
		return fmt.Errorf("the revision of RegoPolicy %s that decides: %w", policy.Name, err)
	}
	hash := sha256.Sum256(content)
	name := policy.Name + "-" + hex.EncodeToString(hash[:5])
	stored := &appsv1.ControllerRevisionList{}
	err = r.Live.List(ctx, stored, client.InNamespace(r.Namespace), client.MatchingLabels{policyLabel: policy.Name})
	if err != nil {
		return fmt.Errorf("listing the stored revisions of RegoPolicy %s: %w", policy.Name, err)
	}
	var highest int64
	var mine *appsv1.ControllerRevision
	for i := range stored.Items {
		s := &stored.Items[i]
		switch {
		case s.Name == name:
			mine = s
		case s.Revision <= maxRevision:
			highest = max(highest, s.Revision)
		}
	}
	switch {
	case mine == nil:
		err = r.create(ctx, policy, state, name, content, highest+1)
	case !holds(mine, content):
		return collision(mine, policy.Name)
	case mine.Revision <= highest || mine.Revision > maxRevision:
		mine.Revision = highest + 1
		err = r.Client.Update(ctx, mine, client.FieldOwner(fieldOwner))
	}
	if err != nil {
		return fmt.Errorf("storing revision %s of RegoPolicy %s: %w", name, policy.Name, err)
	}
	return r.prune(ctx, stored.Items, name)
}

func (r *Reconciler) create(ctx context.Context, policy *v1alpha1.RegoPolicy, state State, name string, content []byte, number int64) error {
	made := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: name,
			Labels:      map[string]string{policyLabel: policy.Name},
			Annotations: map[string]string{revisionAnnotation: state.Active},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "RegoPolicy", Name: policy.Name, UID: policy.UID,
			}},
		},
		Data:     runtime.RawExtension{Raw: state.Data},
		Revision: number,
	}
	err := r.Client.Create(ctx, made, client.FieldOwner(fieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there := &appsv1.ControllerRevision{}
	if gerr := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: name}, there); gerr != nil {
		return gerr
	}
	if !holds(there, content) || there.Labels[policyLabel] != policy.Name {
		return collision(there, policy.Name)
	}
	return err // another leader was faster; the next pass reads its number
}

func collision(there *appsv1.ControllerRevision, policy string) error {
	return fmt.Errorf("ControllerRevision %s/%s is not a stored revision of RegoPolicy %s, or of another one: delete it",
		there.Namespace, there.Name, policy)
}

func holds(stored *appsv1.ControllerRevision, content []byte) bool {
	theirs, err := essence(stored.Data.Raw)
	return err == nil && bytes.Equal(theirs, content)
}

// essence returns what distinguishes revisions: the object's identity and its decisive content. Generations and the
// identity of libraries are not part of it.
func essence(data json.RawMessage) ([]byte, error) {
	var revision struct {
		Policy struct {
			Metadata struct {
				Name string    `json:"name"`
				UID  types.UID `json:"uid"`
			} `json:"metadata"`
			Spec any `json:"spec"`
		} `json:"policy"`
		Libraries []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec any `json:"spec"`
		} `json:"libraries,omitempty"`
	}
	if err := json.Unmarshal(data, &revision); err != nil {
		return nil, err
	}
	return json.Marshal(revision)
}

// prune deletes all but the newest revisions, and those with numbers that are too high, but never the active one.
func (r *Reconciler) prune(ctx context.Context, stored []appsv1.ControllerRevision, decides string) error {
	slices.SortFunc(stored, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(b.Revision, a.Revision) })
	kept := 1 // the active one
	for i := range stored {
		s := &stored[i]
		if s.Name == decides {
			continue
		}
		if s.Revision <= maxRevision {
			if kept++; kept <= keptRevisions {
				continue
			}
		}
		err := r.Client.Delete(ctx, s, client.Preconditions{UID: ptr.To(s.UID), ResourceVersion: ptr.To(s.ResourceVersion)})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting the old revision %s: %w", s.Name, err)
		}
	}
	return nil
}
