"""Body pose: the `Pose` of a person, pose estimators, tracking, cameras, and stores of poses."""
