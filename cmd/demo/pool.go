package main

// runners is a pool of machines from the template, as many as the quota of the namespace allows beside the adopted machines, each with a disk.
const runners = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachinePool
metadata: {name: runners}
spec:
  replicas: 3
  scaleDownPolicy: NewestFirst
  virtualDiskTemplates:
  - name: cache
    reclaim: {onScaleDown: Retain}
    spec:
      size: 10Gi
      runtime: {vsphere: {serverRef: {name: vc-1}, datastore: /DC0/datastore/LocalDS_0}}
  virtualMachineTemplate:
    spec:
      blockDeviceRefs: [{kind: VirtualDisk, name: cache}]
      runtime:
        vsphere:
          serverRef: {name: vc-1}
          clone:
            template: {inventoryPath: ` + inventory + ubuntu + `}
            folder: /DC0/vm
            resourcePool: /DC0/host/DC0_C0
            datastore: /DC0/datastore/LocalDS_0
            networks: [/DC0/network/DC0_DVPG0]
`

// theRunners lists the machines of the pool.
const theRunners = "get svm -l sallyport.dev/pool=runners"

func (s *show) pool() {
	s.chapter("A pool of machines", "The pool has three machines from one template, each with its own disk. One of them starts a job and is marked as busy.")
	s.create(runners)
	s.kubectl("wait svmpool/runners --for=condition=Ready --timeout=3m")
	s.kubectl(theRunners, "runners-0", "runners-1", "runners-2")
	s.kubectl("sallyport busy runners-2 --for 30m --holder https://ci.example.com/jobs/4711", "is busy until")
	s.tell("A scale-down removes the newest member first, but not a busy one:")
	s.kubectl("scale svmpool runners --replicas=2", "scaled")
	s.kubectl("wait svm/runners-1 --for=delete --timeout=2m")
	s.kubectl(theRunners, "runners-0", "runners-2")
	s.tell("With scaleDownPolicy Explicit, a scale-down must name the members. Changing only the number is denied:")
	s.kubectl(`patch svmpool runners --type=merge --patch={"spec":{"scaleDownPolicy":"Explicit"}}`)
	s.denied("scale svmpool runners --replicas=1", "", "ScaleDownNotNamed", "kubectl sallyport scale-down runners")
	s.kubectl("sallyport scale-down runners --vm runners-0", "scaled from 2 to 1")
	s.kubectl("wait svm/runners-0 --for=delete --timeout=2m")
	s.kubectl("get svmpool runners", "Explicit")
	s.tell("The disk of the removed member is retained with its data for the next member with the same number:")
	s.kubectl("get svd", "runners-cache-0", "Available")
	s.kubectl("scale svmpool runners --replicas=2", "scaled")
	s.kubectl("wait svmpool/runners --for=condition=Ready --timeout=2m")
	s.kubectl("get svd runners-cache-0", "InUse", "runners-0")
	s.kubectl("delete svmpool runners --cascade=foreground --timeout=2m")
}
